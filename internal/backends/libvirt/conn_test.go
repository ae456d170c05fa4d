package libvirt

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"proxyfleet/internal/backends"
)

func TestADaemonThatIsNotReachedInTimeIsToldFromACallerThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, unreachable(ctx, backends.CheckUnreachable, ctx.Err(), "")
		}
		_, err := open(t.Context(), silent)
		if backends.Ended(err) || verdict("libvirtd", err).Code != backends.CheckTimeout || backends.Class(err) != backends.ErrTransient {
			t.Errorf("a silent daemon: got %v, want a timeout of ours", err)
		}
		left, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := open(left, silent); !backends.Ended(err) {
			t.Errorf("a caller that left: got %v", err)
		}
	})
}
