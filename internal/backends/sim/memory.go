package sim

import (
	"maps"
	"sync"
)

// memory is a store that ends with its process.
type memory struct {
	mu      sync.RWMutex // guards objects
	objects map[string]map[string]object
}

func newMemory() *memory {
	m := &memory{objects: map[string]map[string]object{}}
	for _, kind := range kinds {
		m.objects[kind] = map[string]object{}
	}
	return m
}

func (m *memory) get(k key) (object, bool, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	o, found := m.objects[k.Kind][k.Name]
	return o, found, nil
}

func (m *memory) put(k key, o object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[k.Kind][k.Name] = o
	return nil
}

func (m *memory) remove(k key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects[k.Kind], k.Name)
	return nil
}

func (m *memory) list(kind string) (map[string]object, map[string]error, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return maps.Clone(m.objects[kind]), nil, nil
}

func (m *memory) count(kind string) (int, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.objects[kind]), nil
}
