package gcpfake

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// tokenPath is where service accounts get tokens; Google's is https://oauth2.googleapis.com/token.
const tokenPath = "/token"

// ServiceAccountKey is a key file of a service account whose tokens come from this server. It
// turns authentication on: from now on a request needs a token that the server gave out.
func (s *Server) ServiceAccountKey() []byte {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		s.t.Fatalf("gcpfake: %v", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		s.t.Fatalf("gcpfake: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accountKey, s.authentic = &key.PublicKey, true
	file, err := json.MarshalIndent(object{
		"type": "service_account", "project_id": s.options.Project, "private_key_id": fmt.Sprintf("%x", sha256.Sum256(der))[:40],
		"private_key":  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"client_email": s.account(), "client_id": "104857600000000000001", "auth_uri": "https://accounts.google.com/o/oauth2/auth",
		"token_uri": s.URL() + tokenPath, "universe_domain": "googleapis.com",
	}, "", "  ")
	if err != nil {
		s.t.Fatalf("gcpfake: %v", err)
	}
	return file
}

// RevokeTokens makes every token that was given out invalid.
func (s *Server) RevokeTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

// account is who the agent is.
func (s *Server) account() string { return "agent@" + s.options.Project + ".iam.gserviceaccount.com" }

// grant answers a service account's signed assertion with a token (RFC 7523), as
// https://developers.google.com/identity/protocols/oauth2/service-account says.
func (s *Server) grant(w http.ResponseWriter, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	form, err := url.ParseQuery(string(body))
	if err != nil || form.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		writeJSON(w, 400, object{"error": "unsupported_grant_type", "error_description": "Invalid grant_type: " + form.Get("grant_type")})
		return
	}
	if !s.signed(form.Get("assertion")) {
		writeJSON(w, 400, object{"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
		return
	}
	writeJSON(w, 200, object{"access_token": s.newToken(), "expires_in": 3599, "token_type": "Bearer"})
}

func (s *Server) newToken() string {
	token := "ya29." + rand.Text()
	s.tokens[token] = true
	return token
}

// signed checks an assertion (RS256).
func (s *Server) signed(assertion string) bool {
	parts := strings.Split(assertion, ".")
	if len(parts) != 3 || s.accountKey == nil {
		return false
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	return err == nil && rsa.VerifyPKCS1v15(s.accountKey, crypto.SHA256, sum[:], signature) == nil
}

// authenticate checks the bearer token, where the server asks for one.
func (s *Server) authenticate(header string) error {
	if !s.authentic {
		return nil
	}
	if token, ok := strings.CutPrefix(header, "Bearer "); ok && s.tokens[token] {
		return nil
	}
	return unauthenticated()
}

// generateAccessToken is impersonation: a token for a service account, for who may have it.
func generateAccessToken(c *call) (object, error) {
	if !c.s.may("iam.serviceAccounts.getAccessToken") {
		return nil, &Error{Code: 403, Reason: "forbidden", Status: "PERMISSION_DENIED",
			Message: "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist)."}
	}
	return object{"accessToken": c.s.newToken(), "expireTime": c.now.Add(time.Hour).UTC().Format(time.RFC3339)}, nil
}
