package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/goccy/go-yaml"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator"
)

// config is coordinator.yaml. coordinator.sample.yaml shows every field.
type config struct {
	Installation string           `yaml:"installation"` // id that bootstrap printed; empty: any
	Root         string           `yaml:"root"`
	NATS         bus.ClientConfig `yaml:"nats"`
	Lease        time.Duration    `yaml:"lease"`
	Silence      time.Duration    `yaml:"silence"`
	LossDelay    time.Duration    `yaml:"lossDelay"`
	HTTP         struct {
		Address string `yaml:"address"`
	} `yaml:"http"`
	Log struct {
		Level  string `yaml:"level"`
		Format string `yaml:"format"`
	} `yaml:"log"`
}

//go:embed coordinator.sample.yaml
var sample []byte

// loadConfig reads a file strictly: what it does not know is an error with its position.
func loadConfig(path string) (config, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return config{}, fmt.Errorf("there is no %s; write one (coordinator config sample prints one with every option), or try coordinator dev", path)
	}
	if err != nil {
		return config{}, fmt.Errorf("read the configuration: %w", err)
	}
	c, err := parseConfig(raw)
	if err != nil {
		return config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func parseConfig(raw []byte) (config, error) {
	var c config
	err := yaml.NewDecoder(bytes.NewReader(raw), yaml.Strict()).Decode(&c)
	if err != nil && !errors.Is(err, io.EOF) { // an empty document
		return config{}, errors.New(yaml.FormatError(err, false, true))
	}
	c.Root, c.Lease, c.Silence = cmp.Or(c.Root, bus.DefaultRoot), cmp.Or(c.Lease, coordinator.DefaultLeaseTTL), cmp.Or(c.Silence, 20*time.Second)
	c.LossDelay = cmp.Or(c.LossDelay, 5*time.Minute)
	c.Log.Level, c.Log.Format = cmp.Or(c.Log.Level, "info"), cmp.Or(c.Log.Format, "text")
	switch {
	case c.Installation != "" && !bus.ValidULID(c.Installation):
		return config{}, errors.New("installation: is not an id as coordinator bootstrap prints it")
	case c.Lease < bus.MinLeaseTTL:
		return config{}, fmt.Errorf("lease: is shorter than %v", bus.MinLeaseTTL)
	case c.Silence < 10*time.Second:
		return config{}, errors.New("silence: is shorter than 10s, two beats of a host")
	case c.LossDelay < 0:
		return config{}, errors.New("lossDelay: is negative")
	}
	return c, nil
}

// configPath is where every command finds the configuration.
type configPath struct {
	Config string `name:"config" short:"c" type:"path" default:"/etc/proxyfleet/coordinator.yaml" env:"PROXYFLEET_COORDINATOR_CONFIG" help:"Path of coordinator.yaml (default: ${default})."`
}

type configCmd struct {
	Sample   sampleCmd   `cmd:"" help:"Print a coordinator.yaml with every option, its default and its meaning."`
	Validate validateCmd `cmd:"" help:"Read coordinator.yaml and say what is wrong with it, with line and column."`
}

type sampleCmd struct{}

func (sampleCmd) Run() error {
	_, err := os.Stdout.Write(sample)
	return err
}

type validateCmd struct{ configPath }

func (c validateCmd) Run() error {
	if _, err := loadConfig(c.Config); err != nil {
		return err
	}
	_, err := fmt.Printf("%s is valid\n", c.Config)
	return err
}
