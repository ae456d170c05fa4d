package bus

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A server that has lost its stream's leader takes a request and never answers it.
func TestARequestThatIsNeverAnsweredIsAskedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		deadline time.Duration // 0: none
		answers  int           // by which attempt
		took     time.Duration
		err      error
	}{
		"answered at once":          {time.Minute, 1, 0, nil},
		"answered the third time":   {time.Minute, 3, 2 * apiTimeout, nil},
		"never answered":            {12 * time.Second, 100, 12 * time.Second, context.DeadlineExceeded},
		"asked once, for ever else": {0, 2, apiTimeout, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				began, asked := time.Now(), 0
				_, err := asking(ctx, func(ctx context.Context) (int, error) {
					if asked++; asked == c.answers {
						return asked, nil
					}
					<-ctx.Done()
					return 0, ctx.Err()
				})
				if took := time.Since(began); took != c.took || !errors.Is(err, c.err) {
					t.Errorf("after %v: %v; want %v after %v", took, err, c.err, c.took)
				}
			})
		})
	}
}
