package passwd

import (
	"strings"
	"testing"

	"github.com/go-crypt/crypt/algorithm/shacrypt"

	"proxyfleet/internal/secret"
)

func TestAHashMatchesItsPasswordOnly(t *testing.T) {
	var all strings.Builder
	for c := byte(' '); c <= '~'; c++ {
		all.WriteByte(c)
	}
	for _, pw := range []string{"x", "12345678", "123456789", all.String(), strings.Repeat("a", 255)} {
		hash, err := Hash("uid", "name", secret.String(pw))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(hash, "$6$") || strings.ContainsAny(hash, ":\n ") {
			t.Errorf("hash %q does not fit a password file", hash)
		}
		if !Matches(hash, secret.String(pw)) || Matches(hash, secret.String(pw+"x")) || Matches(hash, "") {
			t.Errorf("password %q: the hash does not tell right from wrong", pw)
		}
	}
	if Matches("", "") || Matches("plain", "plain") {
		t.Error("what is no hash matches")
	}
}

func TestWhatIsTooLongIsNotHashed(t *testing.T) {
	long := secret.String(strings.Repeat("a", MaxPassword+1))
	if _, err := Hash("uid", "name", long); err == nil {
		t.Error("a password is hashed that never matches")
	}
	h, err := shacrypt.New(shacrypt.WithSHA512(), shacrypt.WithIterations(rounds))
	if err != nil {
		t.Fatal(err)
	}
	digest, err := h.Hash(long.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	if Matches(digest.Encode(), long) {
		t.Error("what a client presents is hashed, however long it is")
	}
}

func TestHashesAreStableAndDifferByProxyAndName(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range [][2]string{{"u1", "a"}, {"u2", "a"}, {"u1", "b"}, {"u1a", ""}} {
		hash, err := Hash(c[0], c[1], "same")
		if err != nil || seen[hash] {
			t.Errorf("%v: hash %s (%v) is another's too", c, hash, err)
		}
		seen[hash] = true
		if again, _ := Hash(c[0], c[1], "same"); again != hash {
			t.Errorf("%v: got %s, then %s", c, hash, again)
		}
	}
}
