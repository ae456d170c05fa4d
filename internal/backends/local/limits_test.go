package local

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMoreClientsThanAllowedWait(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &clientListener{Listener: tcp}
	l.limit(1)
	accepted := make(chan net.Conn)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	for range 3 {
		c, err := net.Dial("tcp", tcp.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first := <-accepted
	select {
	case <-accepted:
		t.Fatal("two at once")
	case <-time.After(100 * time.Millisecond):
	}
	first.Close()
	first.Close() // twice counts once
	second := <-accepted
	select {
	case <-accepted:
		t.Fatal("two at once, after one was closed twice")
	case <-time.After(100 * time.Millisecond):
	}
	l.limit(2)
	third := <-accepted
	if _, ok := third.(interface{ CloseWrite() error }); !ok {
		t.Error("a tunnel cannot be half-closed")
	}
	l.Close() // while Accept waits for its turn
	if _, more := <-accepted; more {
		t.Error("accepted after the end")
	}
	second.Close()
	third.Close()
}

func TestOpenFilesFollowTheConnections(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
		_ = Limits{MemoryMiB: 1 << 20}.apply()
	})
	for _, connections := range []int{100, 200} { // up again as well
		if err := (Limits{Connections: connections, MemoryMiB: 1 << 20}).apply(); err != nil {
			t.Fatal(err)
		}
		var now unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil || now.Cur != uint64(2*connections+spareFiles) {
			t.Errorf("%d connections: got %d open files (%v)", connections, now.Cur, err)
		}
	}
	if err := (Limits{Connections: 1 << 40}).apply(); err == nil {
		t.Error("a hard limit that is too low is passed over in silence")
	}
}

func TestMemoryIsMeasured(t *testing.T) {
	if used, over := (Limits{MemoryMiB: 1}).exceeded(); !over || used < 2 {
		t.Errorf("got %d MiB, over %v; a Go process has more than 1 MiB", used, over)
	}
	if used, over := (Limits{MemoryMiB: 1 << 20}).exceeded(); over {
		t.Errorf("%d MiB are said to be over 1 TiB", used)
	}
}
