package bus

import (
	"testing"
	"time"
)

// A server that takes over a stream says for a moment that less is there than was.
func TestAStreamWithReplicasMustStayBehindUntilThatIsBelieved(t *testing.T) {
	now := time.Now()
	var b behind
	if !b.believed(now, 1) {
		t.Error("without replicas there is nobody else who could have it")
	}
	b = behind{}
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {behindPatience / 2, false}, {behindPatience, true}} {
		if got := b.believed(now.Add(c.after), 3); got != c.want {
			t.Errorf("after %v: got %v", c.after, got)
		}
	}
}
