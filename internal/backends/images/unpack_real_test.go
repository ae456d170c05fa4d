//go:build real

package images

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"proxyfleet/internal/backends"
)

// packed is image, compressed by the program of that name.
func packed(t testing.TB, image []byte, program string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin = bytes.NewReader(image)
	out, err := cmd.Output()
	must(t, err)
	return out
}

func TestCompressedImagesAreUnpacked(t *testing.T) {
	raw := append([]byte("a boot sector"), make([]byte, 8<<20)...)
	for format, image := range map[string][]byte{"qcow2": qcow2(t, "a"), "raw": raw} {
		for _, program := range []string{"gzip", "xz", "zstd"} {
			t.Run(format+" by "+program, func(t *testing.T) {
				dir, small := t.TempDir(), packed(t, image, program, "-c")
				o := newOrigin(t, small)
				var steps []string
				// The digest is of what is fetched: that is what people find beside a download.
				b, err := newCache(t, Options{}).Fetch(t.Context(), dir, Source{Key: "k", URL: o.URL, Format: format, Digest: sha(small)},
					func(step string, _ int) {
						if len(steps) == 0 || steps[len(steps)-1] != step {
							steps = append(steps, step)
						}
					})
				must(t, err)
				got, err := os.ReadFile(b.Path)
				must(t, err)
				if !bytes.Equal(got, image) || b.Format != format || b.Digest != sha(small) {
					t.Errorf("the base differs from the image: %+v", b)
				}
				if want := []string{"downloading image", "unpacking image", "checking image"}; !slices.Equal(steps, want) {
					t.Errorf("steps were %q, want %q", steps, want)
				}
				if n := left(t, dir); len(n) != 2 {
					t.Errorf("in the directory: %v, want the base and its record", n)
				}
				var st syscall.Stat_t
				must(t, syscall.Stat(b.Path, &st))
				if format == "raw" && st.Blocks*512 > 1<<20 {
					t.Errorf("8 MiB of zeros take %d bytes", st.Blocks*512)
				}
			})
		}
	}
}

func TestWhatIsNoWholeArchiveIsPermanentAndKeepsNothing(t *testing.T) {
	image := qcow2(t, "a")
	for _, program := range []string{"gzip", "xz", "zstd"} {
		whole := packed(t, image, program, "-c")
		flipped := bytes.Clone(whole)
		flipped[len(flipped)/2] ^= 0xff
		for what, content := range map[string][]byte{"cut off": whole[:len(whole)-9], "damaged": flipped} {
			dir := t.TempDir()
			_, err := newCache(t, Options{}).Fetch(t.Context(), dir, Source{Key: "k", URL: newOrigin(t, content).URL}, nil)
			if backends.Class(err) != backends.ErrPermanent || len(left(t, dir)) > 0 {
				t.Errorf("%s, %s: %v, left %v", program, what, err, left(t, dir))
			}
		}
	}
}

func TestAnArchiveThatUnpacksToMoreThanTheLimitIsRefused(t *testing.T) {
	dir := t.TempDir()
	bomb := packed(t, make([]byte, 4<<20), "zstd", "-c")
	_, err := newCache(t, Options{MaxBytes: 1 << 20}).Fetch(t.Context(), dir, Source{Key: "k", URL: newOrigin(t, bomb).URL, Format: "raw"}, nil)
	wantClass(t, err, backends.ErrPermanent)
	if n := left(t, dir); len(n) > 0 || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("%v, left %v", err, n)
	}
}

func TestAnArchiveThatAsksForMuchMemoryIsRefused(t *testing.T) {
	_, err := newCache(t, Options{}).Fetch(t.Context(), t.TempDir(), Source{Key: "k", Format: "raw",
		URL: newOrigin(t, packed(t, make([]byte, 1<<20), "xz", "-c", "--lzma2=dict=512MiB")).URL}, nil)
	wantClass(t, err, backends.ErrPermanent)
}

func TestADiskThatIsFullWhileUnpackingIsNoCapacityAndKeepsNothing(t *testing.T) {
	dir := t.TempDir()
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	small := packed(t, bytes.Repeat([]byte("text"), 1<<20), "zstd", "-c")
	_, err := newCache(t, Options{}).Fetch(t.Context(), dir, Source{Key: "k", URL: newOrigin(t, small).URL, Format: "raw"}, nil)
	wantClass(t, err, backends.ErrNoCapacity)
	if n := left(t, dir); len(n) > 0 {
		t.Errorf("left: %v", n)
	}
}

func TestAnAgentThatDiesWhileUnpackingDoesNotFetchAgain(t *testing.T) {
	dir, small := t.TempDir(), packed(t, qcow2(t, "a"), "xz", "-c")
	o := newOrigin(t, small)
	s := Source{Key: "k", URL: o.URL, Digest: sha(small)}
	for _, step := range []string{"image.unpack", "image.publish"} {
		ctx := backends.WithSteps(t.Context(), func(label string) error {
			if label == step {
				return errors.New("killed")
			}
			return nil
		})
		if _, err := newCache(t, Options{}).Fetch(ctx, dir, s, nil); err == nil {
			t.Fatalf("%s did not fail", step)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, StateDir, "part-"+s.entry()+".unpacked"), []byte("half"), 0o600))
	fetch(t, newCache(t, Options{}), dir, s)
	for _, asked := range o.requests()[1:] {
		if asked == "-" {
			t.Errorf("asked for %v, want the whole of it once", o.requests())
		}
	}
	if n := left(t, dir); len(n) != 2 {
		t.Errorf("in the directory: %v, want the base and its record", n)
	}
}

// TestAProgramThatIsKilledResumesItsDownload ends a whole process in the middle of one.
func TestAProgramThatIsKilledResumesItsDownload(t *testing.T) {
	if dir := os.Getenv("PROXYFLEET_TEST_FETCH_INTO"); dir != "" { // the process that is killed
		_, err := New(Options{}).Fetch(context.Background(), dir, Source{Key: "k", URL: os.Getenv("PROXYFLEET_TEST_FETCH_FROM")}, nil)
		t.Fatalf("it was to be killed: %v", err)
	}
	dir, image := t.TempDir(), qcow2(t, "a")
	o := newOrigin(t, image)
	sent := make(chan struct{})
	o.next(func(w http.ResponseWriter, r *http.Request, image []byte) {
		w.Header().Set("ETag", `"`+sha(image)[7:20]+`"`)
		w.Header().Set("Content-Length", "10000000")
		_, _ = w.Write(image[:300_000])
		_ = http.NewResponseController(w).Flush()
		close(sent)
		<-r.Context().Done()
	})
	cmd := exec.Command(os.Args[0], "-test.run=^TestAProgramThatIsKilledResumesItsDownload$")
	cmd.Env = append(os.Environ(), "PROXYFLEET_TEST_FETCH_INTO="+dir, "PROXYFLEET_TEST_FETCH_FROM="+o.URL)
	must(t, cmd.Start())
	<-sent
	part := filepath.Join(dir, StateDir, "part-"+Source{Key: "k", URL: o.URL}.entry())
	waitFor(t, func() bool { info, err := os.Stat(part); return err == nil && info.Size() == 300_000 })
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if b := fetch(t, newCache(t, Options{}), dir, Source{Key: "k", URL: o.URL}); b.Digest != sha(image) {
		t.Errorf("got %+v", b)
	}
	if got := o.requests(); len(got) != 2 || got[1] != "bytes=300000-" {
		t.Errorf("asked for %v, want the rest from byte 300000", got)
	}
}
