// Package program holds what the two programs do alike as programs: which version they are,
// how
// they log, and where their spans and metrics go. It imports nothing of proxyfleet, and the commands alone
// import it. Nothing in it blocks but the function that ends tracing, for two seconds at most.
package program

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime/debug"

	"github.com/lmittmann/tint"
)

var semantic = regexp.MustCompile(`^v(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)$`)

// Version is the program's semantic version without the v, as NATS services want theirs: of a
// release, of the commit that it was built from, or "0.0.0-devel".
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	return version(info.Main.Version)
}

const unknown = "0.0.0-devel"

func version(of string) string {
	if m := semantic.FindStringSubmatch(of); m != nil {
		return m[1]
	}
	return unknown
}

// Logger writes to stderr, as text (coloured where that is a terminal) or as "json". level is
// one of debug, info, warn, error.
func Logger(level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
	}
	return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{Level: l, NoColor: !terminal(os.Stderr)})), nil
}

func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
