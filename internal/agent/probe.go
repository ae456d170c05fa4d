package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"proxyfleet/internal/bus"
)

// probeRequest asks for a destination that every proxy of the fleet refuses, by number, so
// that nothing is resolved or reached. It carries no credentials: a proxy that asks for
// them (407) or refuses (403) is one that works.
const probeRequest = "GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: 127.0.0.1:9\r\nUser-Agent: proxyfleet-probe\r\nConnection: close\r\n\r\n"

// probe asks a proxy on each of its addresses until one gives an HTTP answer, whatever its
// status: whether clients get through is for the coordinator's vantage to say.
func probe(ctx context.Context, to []bus.Address, timeout time.Duration) error {
	var errs []error
	for _, a := range to {
		err := probeOne(ctx, net.JoinHostPort(a.Address, strconv.Itoa(a.Port)), timeout)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func probeOne(ctx context.Context, address string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connect to the proxy: %w", err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write([]byte(probeRequest)); err != nil {
		return fmt.Errorf("ask the proxy at %s: %w", address, err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return fmt.Errorf("the proxy at %s gives no HTTP answer: %w", address, err)
	}
	return resp.Body.Close()
}
