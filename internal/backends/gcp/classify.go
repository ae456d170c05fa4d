package gcp

import (
	"errors"
	"slices"
	"strings"

	"proxyfleet/internal/backends"
)

// trouble is what an error is about.
type trouble int

const (
	unknown      trouble = iota
	ended                // the context has
	noCredential         // no token could be had
	noAnswer             // nobody answered, or not in time
	unauthorized         // the token was refused
	denied               // a permission is missing
	apiOff               // the API or the billing is off
	policy               // the organisation forbids it
	rateLimited          // too many requests
	quota                // a quota is used up
	stockOut             // the zone has no machines
	subnetFull           // the subnetwork has no addresses
	absent               // something does not exist
	exists               // the name is taken
	stale                // it changed since it was read
	busy                 // something else is being done to it
	invalid              // it can never work
	server               // Google's own trouble
)

// codes are what the API says, in lower case without "_": reasons of HTTP answers and codes of
// operations alike.
// https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-using-apis
var codes = map[string]trouble{
	"quotaexceeded": quota, "limitexceeded": quota, "resourcequotaexceeded": quota,
	"ratelimitexceeded": rateLimited, "userratelimitexceeded": rateLimited, "concurrentoperationsquotaexceeded": rateLimited, "resourceexhausted": rateLimited,
	"resourceoperationrateexceeded": rateLimited,
	"zoneresourcepoolexhausted":     stockOut, "zoneresourcepoolexhaustedwithdetails": stockOut, "resourcepoolexhausted": stockOut,
	"resourcepoolexhaustedwithdetails": stockOut, "ipspaceexhausted": subnetFull, "ipspaceexhaustedwithdetails": subnetFull,
	"alreadyexists": exists, "resourcealreadyexists": exists, "duplicate": exists,
	"notfound": absent, "resourcenotfound": absent,
	"forbidden": denied, "insufficientpermissions": denied, "permissionserror": denied, "permissiondenied": denied, "iampermissiondenied": denied, "serviceaccountaccessdenied": denied,
	"accessnotconfigured": apiOff, "servicedisabled": apiOff, "billingdisabled": apiOff, "billingnotenabled": apiOff,
	"autherror": unauthorized, "required": invalid, "unauthorized": unauthorized, "accesstokenexpired": unauthorized,
	"resourcenotready": busy, "resourceinusebyanotherresource": busy, "resourceinuse": busy, "ipinusebyanotherresource": busy, "operationincomplete": busy,
	"invalid": invalid, "badrequest": invalid, "invalidparameter": invalid, "invalidfieldvalue": invalid, "invalidusage": invalid,
	"invalidresourceusage": invalid, "unsupportedoperation": invalid, "invalidimage": invalid,
	"conditionnotmet": stale, "internalerror": server, "backenderror": server,
}

// troubleOf is what err is about. Of an operation's several errors the first that is known counts.
func troubleOf(err error) trouble {
	var credential *credentialError
	var silent *silence
	var answer *refusal
	var failed *failure
	switch {
	case err == nil:
		return unknown
	case errors.As(err, &credential):
		if credential.silent {
			return noAnswer
		}
		return noCredential
	case errors.As(err, &silent):
		return noAnswer
	case errors.As(err, &answer):
		return judge(answer.Status, answer.Codes, answer.Text)
	case errors.As(err, &failed):
		said := make([]string, 0, len(failed.Faults))
		texts := make([]string, 0, len(failed.Faults))
		for _, f := range failed.Faults {
			said, texts = append(said, f.Code), append(texts, f.Text)
		}
		return judge(failed.Status, said, strings.Join(texts, "\n"))
	case backends.Ended(err):
		return ended
	}
	return unknown
}

func judge(status int, said []string, text string) trouble {
	// An organisation's policies are told by their text alone.
	if strings.Contains(text, "Constraint constraints/") || strings.Contains(text, "violates constraint") {
		return policy
	}
	if status == 401 {
		return unauthorized
	}
	best := unknown
	for _, c := range said {
		t := codes[strings.ToLower(strings.ReplaceAll(c, "_", ""))]
		// The details of a 403 say better why.
		if t != unknown && (best == unknown || best == denied) {
			best = t
		}
	}
	if best != unknown {
		return best
	}
	switch {
	case status == 403:
		return denied
	case status == 404:
		return absent
	case status == 409:
		return exists
	case status == 412:
		return stale
	case status == 429:
		return rateLimited
	case status >= 500:
		return server
	case status == 400:
		return invalid
	}
	return unknown
}

// classOf is the class of a trouble, where the caller knows no better.
func classOf(t trouble) error {
	switch t {
	case noCredential, unauthorized, denied, apiOff, policy:
		return backends.ErrHostFault
	case quota, stockOut, subnetFull:
		return backends.ErrNoCapacity
	case exists:
		return backends.ErrConflict
	case absent:
		return backends.ErrNotFound
	case invalid:
		return backends.ErrPermanent
	}
	return backends.ErrTransient
}

// hints say what a trouble means and what to do, where the API's own text does not.
var hints = map[trouble]string{
	noCredential: "put the credentials right on this host; they are looked for again by themselves",
	noAnswer:     "it is tried again",
	unauthorized: "the credentials were refused: revoked, expired, or of another universe",
	denied:       "grant the permission that is named to the agent's service account; the agent's check lists all that are missing",
	apiOff:       "switch the Compute Engine API and billing on for the project",
	policy:       "an organisation policy forbids it; change the agent's configuration or the policy",
	rateLimited:  "too many requests for the project's rate quota; it is tried again later",
	quota:        "raise the quota, or free some; the agent's check shows what is left",
	stockOut:     "the zone has no room for it now, whatever the quota",
	subnetFull:   "the subnetwork has no address left; give it a larger range",
	busy:         "something else is being done to it; it is tried again",
	stale:        "somebody changed it meanwhile; it is tried again",
}

// classify gives an error of the API its class. An error that has one keeps it.
func classify(op string, err error, format string, args ...any) error {
	return backends.Judge(op, err, func(err error) (error, string) {
		t := troubleOf(err)
		return classOf(t), hints[t]
	}, format, args...)
}

// isAbsent reports that the API says a thing is not there.
func isAbsent(err error) bool { return troubleOf(err) == absent }

// isDefinite reports that a request was refused, so that nothing came of it.
func isDefinite(err error) bool {
	var answer *refusal
	return errors.As(err, &answer) && answer.Status < 500 && !slices.Contains([]int{408, 429}, answer.Status)
}

// code is the code of a check that failed with err.
func code(err error) string {
	var silent *silence
	switch troubleOf(err) {
	case noCredential:
		return backends.CheckCredentialsUnavailable
	case unauthorized:
		return backends.CheckUnauthorized
	case denied, apiOff, policy:
		return backends.CheckForbidden
	case ended:
		return backends.CheckTimeout
	case noAnswer:
		if errors.As(err, &silent) && silent.slow {
			return backends.CheckTimeout
		}
		return backends.CheckUnreachable
	}
	return backends.CheckAPIError
}
