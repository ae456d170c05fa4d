package pve

import (
	"errors"
	"regexp"
	"strings"

	"proxyfleet/internal/secret"
)

// tokenForm is user@realm!tokenid=secret.
var tokenForm = regexp.MustCompile(`^[^\s:/@!=]+@[A-Za-z][A-Za-z0-9._-]+![A-Za-z][A-Za-z0-9._-]+=[0-9A-Za-z-]+$`)

// token reads an API token: one line, user@realm!tokenid=secret, as pveum prints its parts.
// The header's own prefix may stand before it.
func (c *Client) token() (id string, header secret.String, err error) {
	content, _, err := c.tokenFile.read()
	if err != nil {
		return "", "", &Credential{What: "token file", Path: c.tokenFile.path, Cause: withoutPath(err)}
	}
	text := strings.TrimPrefix(strings.TrimSpace(string(content)), "PVEAPIToken=")
	if !tokenForm.MatchString(text) {
		return "", "", &Credential{What: "token file", Path: c.tokenFile.path,
			Cause: errors.New("it is not one line user@realm!tokenid=secret")}
	}
	id, _, _ = strings.Cut(text, "=")
	return id, secret.String("PVEAPIToken=" + text), nil
}

// TokenID returns the token's id, user@realm!tokenid, which is no secret.
func (c *Client) TokenID() (string, error) {
	id, _, err := c.token()
	return id, err
}
