package agent

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

//go:embed agent.sample.yaml
var sample []byte

// Sample is an agent.yaml with every option, its default and its meaning. It loads as it
// stands.
func Sample() []byte { return bytes.Clone(sample) }

// Load reads, completes and validates a configuration. An unknown, misspelt or repeated
// field is an error with its line and column.
func Load(path string) (Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	c, err := Parse(raw)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Parse is [Load] for a document in memory.
func Parse(raw []byte) (Config, error) {
	var c Config
	dec := yaml.NewDecoder(bytes.NewReader(raw), yaml.Strict())
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, decodeError(err)
	}
	c.setDefaults()
	if err := c.validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// decodeError renders "[line:column] message" with the lines around it, uncoloured.
func decodeError(err error) error {
	return errors.New(yaml.FormatError(err, false, true))
}

// UnmarshalYAML implements [yaml.NodeUnmarshaler]: it takes "type" and keeps the rest.
func (b *BackendConfig) UnmarshalYAML(node ast.Node) error {
	mapping, ok := node.(*ast.MappingNode)
	if !ok {
		return fmt.Errorf("backend: want a mapping with a type")
	}
	rest := *mapping
	rest.Values = nil
	for _, v := range mapping.Values {
		if v.Key.String() != "type" {
			rest.Values = append(rest.Values, v)
			continue
		}
		if err := yaml.NodeToValue(v.Value, &b.Type); err != nil {
			return err
		}
	}
	b.node = &rest
	return nil
}

// decode reads the backend's own keys strictly into its Config.
func (b BackendConfig) decode(into any) error {
	if m, ok := b.node.(*ast.MappingNode); !ok || len(m.Values) == 0 {
		return nil
	}
	if err := yaml.NodeToValue(b.node, into, yaml.Strict()); err != nil {
		return fmt.Errorf("backend %s: %w", b.Type, decodeError(err))
	}
	return nil
}
