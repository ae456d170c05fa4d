package gcpfake

import (
	"fmt"
	"strings"
)

// OperationError is why an operation ended without its effect. Its codes and texts are those of
// https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-resource-availability and
// https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation.
type OperationError struct {
	Code     string
	Message  string
	Location string
	Details  []any // errorDetails
	HTTP     int   // httpErrorStatusCode of the operation
	HTTPText string
}

func (e *OperationError) doc() object {
	out := object{"code": e.Code, "message": e.Message}
	if e.Location != "" {
		out["location"] = e.Location
	}
	if e.Details != nil {
		out["errorDetails"] = e.Details
	}
	return out
}

// stockOut is a zone without machines of a kind.
func stockOut(project, zone string) *OperationError {
	return &OperationError{Code: "ZONE_RESOURCE_POOL_EXHAUSTED", HTTP: 503, HTTPText: "SERVICE UNAVAILABLE",
		Message: fmt.Sprintf("The zone 'projects/%s/zones/%s' does not have enough resources available to fulfill the request.  Try a different zone, or try again later.", project, zone),
		Details: []any{object{"help": object{"links": []any{object{"description": "Troubleshooting documentation", "url": "https://cloud.google.com/compute/docs/resource-error"}}}},
			object{"errorInfo": object{"reason": "stockout", "domain": "compute.googleapis.com", "metadatas": object{"zone": zone, "zonesAvailable": "", "vmType": "", "attachment": ""}}}}}
}

// stockOutWithDetails is the same with the zones that have room.
func stockOutWithDetails(project, zone, machineType string, room ...string) *OperationError {
	list := strings.Join(room, ",")
	hint := "Try a different zone, or try again later."
	if list != "" {
		hint = fmt.Sprintf("Consider trying your request in the %s zone(s), which currently has capacity to accommodate your request. Alternatively, you can try your request again with a different VM hardware configuration or at a later time.", list)
	}
	return &OperationError{Code: "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", HTTP: 503, HTTPText: "SERVICE UNAVAILABLE",
		Message: fmt.Sprintf("The zone 'projects/%s/zones/%s' does not have enough resources available to fulfill the request.  '(resource type:compute)'. A %s VM instance is currently unavailable in the %s zone. %s", project, zone, machineType, zone, hint),
		Details: []any{
			object{"help": object{"links": []any{object{"description": "Troubleshooting documentation", "url": "https://cloud.google.com/compute/docs/resource-error"}}}},
			object{"localizedMessage": object{"locale": "en-US", "message": fmt.Sprintf("A %s VM instance is currently unavailable in the %s zone. %s For more information, see the troubleshooting documentation.", machineType, zone, hint)}},
			object{"errorInfo": object{"reason": "resource_availability", "domain": "compute.googleapis.com",
				"metadatas": object{"zone": zone, "vmType": machineType, "attachment": "", "zonesAvailable": list}}}}}
}

// QuotaExceeded is a quota of a region that does not suffice.
func QuotaExceeded(metric, region string, limit float64) *OperationError {
	where, dims := "globally", object{}
	if region != "" {
		where, dims = "in region "+region, object{"region": region}
	}
	return &OperationError{Code: "QUOTA_EXCEEDED", HTTP: 403, HTTPText: "FORBIDDEN",
		Message: fmt.Sprintf("Quota '%s' exceeded.  Limit: %.1f %s.", metric, limit, where),
		Details: []any{object{"quotaInfo": object{"metricName": quotaMetrics[metric], "limitName": limitName(metric, region), "dimensions": dims, "limit": limit}}}}
}

// ImageGone is an image that vanished after the request was accepted.
func ImageGone(image string) *OperationError {
	return &OperationError{Code: "RESOURCE_NOT_FOUND", HTTP: 404, HTTPText: "NOT FOUND", Message: fmt.Sprintf("The resource '%s' was not found", image)}
}

// OperationRateExceeded is too much done to one resource, for example to one image.
func OperationRateExceeded(resource string) *OperationError {
	return &OperationError{Code: "RESOURCE_OPERATION_RATE_EXCEEDED", HTTP: 403, HTTPText: "FORBIDDEN",
		Message: fmt.Sprintf("Operation rate exceeded for resource '%s'. Too frequent operations from the source resource.", resource)}
}

// PermissionsError is an operation that lacked a right when it came to use it.
func PermissionsError(permission, resource string) *OperationError {
	return &OperationError{Code: "PERMISSIONS_ERROR", HTTP: 403, HTTPText: "FORBIDDEN", Message: fmt.Sprintf("Required '%s' permission for '%s'", permission, resource)}
}

// accountDenied is an instance whose service account the caller may not act as.
func accountDenied(account, caller string) *OperationError {
	return &OperationError{Code: "SERVICE_ACCOUNT_ACCESS_DENIED", HTTP: 400, HTTPText: "BAD REQUEST",
		Message: fmt.Sprintf("The user does not have access to service account '%s'.  User: '%s'.  Ask a project owner to grant you the iam.serviceAccountUser role on the service account", account, caller)}
}

// InternalError is an operation that failed on Google's side.
func InternalError() *OperationError {
	return &OperationError{Code: "INTERNAL_ERROR", HTTP: 500, HTTPText: "INTERNAL SERVER ERROR", Message: "Internal error. Please try again or contact Google Support. (Code: '58F56CB57F8EB.4D1FA40.8E8F1B3B')"}
}
