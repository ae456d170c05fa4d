package gcpfake

import "fmt"

// Error is an answer other than 2xx in the shape of Google's APIs:
//
//	{"error": {"code": 404, "message": "…", "errors": [{"message": "…", "domain": "global", "reason": "notFound"}], "status": …, "details": […]}}
//
// See https://cloud.google.com/compute/docs/api/errors and https://google.aip.dev/193.
type Error struct {
	Code    int
	Reason  string // of errors[0]: "notFound", "rateLimitExceeded"; empty: no errors array
	Message string
	Domain  string // of errors[0]; default "global"
	Status  string // google.rpc.Code's name, where the frontend sends one: "RESOURCE_EXHAUSTED"
	Details []any  // as in google.rpc.Status, with their @type
	// Location is the header or field that was wrong, LocationType what it is.
	Location, LocationType string
	// Header goes out with the answer, for example Retry-After.
	Header map[string]string
	// Plain is the whole body instead of JSON: what a proxy on the way answers.
	Plain string
}

func (e *Error) Error() string { return fmt.Sprintf("%d %s: %s", e.Code, e.Reason, e.Message) }

func (e *Error) body() object {
	inner := object{"code": e.Code, "message": e.Message}
	if e.Reason != "" {
		first := object{"message": e.Message, "domain": "global", "reason": e.Reason}
		if e.Domain != "" {
			first["domain"] = e.Domain
		}
		if e.Location != "" {
			first["location"], first["locationType"] = e.Location, e.LocationType
		}
		inner["errors"] = []any{first}
	}
	if e.Status != "" {
		inner["status"] = e.Status
	}
	if e.Details != nil {
		inner["details"] = e.Details
	}
	return object{"error": inner}
}

func invalid(field string, value any, why string) error {
	return &Error{Code: 400, Reason: "invalid", Message: fmt.Sprintf("Invalid value for field '%s': '%v'. %s", field, value, why)}
}

func missing(field string) error {
	return &Error{Code: 400, Reason: "required", Message: fmt.Sprintf("Required field '%s' not specified", field)}
}

func unknownField(name, parent string) error {
	at := ""
	if parent != "" {
		at = fmt.Sprintf(" at '%s'", parent)
	}
	text := fmt.Sprintf("Invalid JSON payload received. Unknown name %q%s: Cannot find field.", name, at)
	return &Error{Code: 400, Reason: "invalid", Status: "INVALID_ARGUMENT", Message: text, Details: []any{object{
		"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": []any{object{"field": parent, "description": text}}}}}
}

func notFound(key string) error {
	return &Error{Code: 404, Reason: "notFound", Message: fmt.Sprintf("The resource '%s' was not found", key)}
}

func alreadyExists(key string) error {
	return &Error{Code: 409, Reason: "alreadyExists", Message: fmt.Sprintf("The resource '%s' already exists", key)}
}

// NotReady is the answer to a call on a resource with which something else is being done.
func NotReady(key string) *Error {
	return &Error{Code: 400, Reason: "resourceNotReady", Message: fmt.Sprintf("The resource '%s' is not ready", key)}
}

func inUse(what, key, by string) error {
	return &Error{Code: 400, Reason: "resourceInUseByAnotherResource",
		Message: fmt.Sprintf("The %s resource '%s' is already being used by '%s'", what, key, by)}
}

func forbidden(permission, key string) error {
	return &Error{Code: 403, Reason: "forbidden", Message: fmt.Sprintf("Required '%s' permission for '%s'", permission, key)}
}

func conditionNotMet(text string) error {
	return &Error{Code: 412, Reason: "conditionNotMet", Message: text, Location: "If-Match", LocationType: "header"}
}

func unauthenticated() error {
	const text = "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project."
	return &Error{Code: 401, Reason: "authError", Message: text, Status: "UNAUTHENTICATED", Location: "Authorization", LocationType: "header"}
}

// RateLimited is Compute Engine's answer beyond a rate: 403 with the reason rateLimitExceeded.
func RateLimited(group string) *Error {
	text := fmt.Sprintf("Quota exceeded for quota metric '%s' and limit '%s per minute' of service 'compute.googleapis.com' for consumer 'project_number:%s'.", group, group, projectNumber)
	return &Error{Code: 403, Reason: "rateLimitExceeded", Domain: "usageLimits", Message: text, Status: "PERMISSION_DENIED", Details: []any{object{
		"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RATE_LIMIT_EXCEEDED", "domain": "googleapis.com",
		"metadata": object{"service": "compute.googleapis.com", "consumer": "projects/" + projectNumber, "quota_metric": "compute.googleapis.com/default", "quota_location": "global"}}}}
}

// TooManyRequests is a 429, with Retry-After where seconds is not 0.
func TooManyRequests(seconds int) *Error {
	e := &Error{Code: 429, Reason: "rateLimitExceeded", Domain: "usageLimits", Status: "RESOURCE_EXHAUSTED",
		Message: "Resource has been exhausted (e.g. check quota)."}
	if seconds != 0 {
		e.Header = map[string]string{"Retry-After": fmt.Sprint(seconds)}
	}
	return e
}

// BackendError is a 503 of the API itself.
func BackendError() *Error {
	return &Error{Code: 503, Reason: "backendError", Status: "UNAVAILABLE", Message: "Internal error. Please try again or contact Google Support. (Code: '-6221516254876327351')"}
}

// BadGateway is a 502 of Google's frontend: HTML, no JSON.
func BadGateway() *Error {
	return &Error{Code: 502, Plain: "<!DOCTYPE html>\n<html lang=en>\n<title>Error 502 (Server Error)!!1</title>\n<p><b>502.</b> <ins>That’s an error.</ins>\n"}
}

// ServiceDisabled is the answer of a project without the API.
func ServiceDisabled() *Error {
	text := "Compute Engine API has not been used in project " + projectNumber + " before or it is disabled. Enable it by visiting https://console.developers.google.com/apis/api/compute.googleapis.com/overview?project=" + projectNumber + " then retry."
	return &Error{Code: 403, Reason: "accessNotConfigured", Domain: "usageLimits", Status: "PERMISSION_DENIED", Message: text, Details: []any{object{
		"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED", "domain": "googleapis.com",
		"metadata": object{"service": "compute.googleapis.com", "consumer": "projects/" + projectNumber}}}}
}
