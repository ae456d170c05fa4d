package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"proxyfleet/internal/backends"
)

// keeperOf fetches images with a function.
type keeperOf func(key string) error

func (k keeperOf) ListImages(context.Context) ([]backends.BaseImage, error) { return nil, nil }

func (k keeperOf) PruneImages(context.Context, int64) ([]backends.BaseImage, error) { return nil, nil }

func (k keeperOf) PullImage(_ context.Context, key string, report func(backends.Progress)) (backends.BaseImage, error) {
	report(backends.Progress{Step: "downloading image", Percent: 1})
	return backends.BaseImage{}, k(key)
}

func TestImagesAreFetchedInAdvanceUntilEachIsThereAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began, down := time.Now(), true
		var mu sync.Mutex // guards down and what follows
		var asked []string
		said := map[string]string{}
		p := puller{
			keeper: keeperOf(func(key string) error {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, fmt.Sprint(key, " ", time.Since(began).Round(time.Second)))
				if key == "a" && down {
					return errors.New("the server is down")
				}
				return nil
			}),
			keys: []string{"a", "b"}, log: slog.New(slog.DiscardHandler),
			policy: policy{RetryMin: 10 * time.Second, RetryMax: time.Minute, Spread: func() float64 { return 1 }},
			say: func(target, code, _ string) {
				mu.Lock()
				defer mu.Unlock()
				said[target] = code
			},
		}
		done := make(chan error)
		go func() { done <- p.run(ctx) }()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		mu.Lock()
		if said["image/a"] != backends.CheckAPIError || said["image/b"] != "" {
			t.Errorf("while one cannot be fetched: %v", said)
		}
		down = false
		mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if said["image/a"] != "" {
			t.Errorf("once it was fetched: %v", said)
		}
		want := []string{"a 0s", "b 0s", "a 10s", "b 10s", "a 30s", "b 30s", "a 30m30s", "b 30m30s"}
		if !slices.Equal(asked, want) {
			t.Errorf("asked %v, want %v", asked, want)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
