package proxmox

import (
	"errors"
	"fmt"
	"strings"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// classify gives an error of the client its class. An error that has one keeps it.
func classify(op string, err error, format string, args ...any) error {
	return backends.Judge(op, err, judge, format, args...)
}

// judge returns the class of an error of the client, and what to do about it where there is
// something to say.
func judge(err error) (class error, hint string) {
	if backends.Ended(err) {
		return backends.ErrTransient, ""
	}
	var credential *pve.Credential
	var silent *pve.NoAnswer
	var task *pve.TaskError
	var answer *pve.Error
	switch {
	case errors.As(err, &credential):
		return backends.ErrHostFault, "put it right on this host; it is read again by itself"
	case errors.As(err, &silent):
		if silent.Trouble == pve.Untrusted {
			return backends.ErrHostFault, "the servers' certificates do not fit the configured CA or fingerprint"
		}
		return backends.ErrTransient, ""
	case errors.As(err, &task):
		return judgeText(task.Outcome.Text + "\n" + strings.Join(task.Outcome.Log, "\n"))
	case errors.As(err, &answer):
		return judgeAnswer(err, answer)
	}
	return backends.ErrTransient, ""
}

func judgeAnswer(err error, e *pve.Error) (class error, hint string) {
	switch {
	case e.Status == 401:
		return backends.ErrHostFault, "the token is unknown, expired or has another secret"
	case e.Status == 403:
		return backends.ErrHostFault, forbidden(e.Text)
	case e.Status == 501:
		return backends.ErrHostFault, "this version of Proxmox VE does not have that call"
	case pve.IsNoStorage(err):
		return backends.ErrHostFault, "see the storages in the agent's configuration"
	case pve.IsPassedOn(err), e.Status >= 502 && e.Status <= 504:
		return backends.ErrTransient, ""
	case pve.IsNoVM(err):
		return backends.ErrTransient, "" // it may have migrated; who wants to know looks again
	case e.Status == 400:
		return backends.ErrPermanent, ""
	}
	return judgeText(e.Text)
}

// judgeText goes by what PVE says, where it says nothing else. Unknown texts are Transient.
func judgeText(text string) (class error, hint string) {
	if pve.NoSpace(text) {
		return backends.ErrNoCapacity, "the storage is full"
	}
	if lock, ok := pve.Locked(text); ok {
		if lock == "file" {
			return backends.ErrTransient, "another task holds the VM's configuration"
		}
		return backends.ErrTransient, fmt.Sprintf("the VM has the lock %q", lock)
	}
	if strings.Contains(text, "Permission check failed") {
		return backends.ErrHostFault, forbidden(text)
	}
	if strings.Contains(text, "not enough memory") || strings.Contains(text, "Cannot allocate memory") {
		return backends.ErrNoCapacity, "the node has not enough memory"
	}
	return backends.ErrTransient, ""
}

// forbidden says what to grant. PVE names path and privileges, but for a few calls.
func forbidden(text string) string {
	_, rest, ok := strings.Cut(text, "Permission check failed (")
	rest, _, closed := strings.Cut(rest, ")")
	path, privileges, both := strings.Cut(rest, ", ")
	if !ok || !closed || !both {
		return "the token lacks a privilege that Proxmox VE does not name, for a clone mostly VM.Allocate on /vms; see the agent's check"
	}
	return fmt.Sprintf("the token lacks %s on %s", strings.ReplaceAll(privileges, "|", " or "), path)
}

// code is the code of a check that failed with err.
func code(err error) string {
	if backends.Ended(err) {
		return backends.CheckTimeout
	}
	var credential *pve.Credential
	var silent *pve.NoAnswer
	var answer *pve.Error
	switch {
	case errors.As(err, &credential):
		if credential.What == "token file" {
			return backends.CheckCredentialsUnavailable
		}
		return backends.CheckCertificateInvalid
	case errors.As(err, &silent):
		switch silent.Trouble {
		case pve.Untrusted:
			return backends.CheckCertificateInvalid
		case pve.Slow:
			return backends.CheckTimeout
		}
		return backends.CheckUnreachable
	case errors.As(err, &answer):
		switch {
		case answer.Status == 401:
			return backends.CheckUnauthorized
		case answer.Status == 403:
			return backends.CheckForbidden
		case pve.IsPassedOn(err):
			return backends.CheckUnreachable
		case pve.IsNoStorage(err):
			return backends.CheckStorageNotFound
		}
	}
	return backends.CheckAPIError
}
