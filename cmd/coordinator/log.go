package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/lmittmann/tint"
)

type logConfig struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// logger writes to stderr, coloured where that is a terminal.
func (c logConfig) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})), nil
	}
	return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{Level: level, TimeFormat: "15:04:05.000", NoColor: !terminal(os.Stderr)})), nil
}

func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
