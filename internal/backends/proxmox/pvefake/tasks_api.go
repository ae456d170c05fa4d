package pvefake

import (
	"regexp"
	"slices"
	"strings"
)

var upidRE = regexp.MustCompile(`^UPID:([a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?):[0-9A-Fa-f]{8}:[0-9A-Fa-f]{8,9}:[0-9A-Fa-f]{8}:[^:\s]+:[^:\s]*:([^:\s]+):$`)

// owns: a token sees its own tasks, a user his own and those of his tokens.
func (a caller) owns(user string) bool {
	return a.String() == user || a.token == "" && strings.HasPrefix(user, a.user+"!")
}

// upid checks the task's id and the caller's right to it; the task is nil when
// it is unknown or of another node.
func (r *request) upid(priv string) (*task, error) {
	m := upidRE.FindStringSubmatch(r.params["upid"])
	if m == nil {
		return nil, paramErr("upid", "unable to parse worker upid")
	}
	if !r.who.owns(m[2]) {
		if err := r.c.need(r.who, "/nodes/"+r.node.name, priv); err != nil {
			return nil, err
		}
	}
	t := r.c.tasks[r.params["upid"]]
	if t != nil && t.node != r.node.name {
		t = nil
	}
	return t, nil
}

func getTaskStatus(r *request) (any, error) {
	t, err := r.upid("Sys.Audit")
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, paramErr("upid", "no such task")
	}
	d := map[string]any{
		"upid": t.upid, "node": t.node, "type": t.typ, "id": t.id, "user": t.who.user,
		"pid": t.pid, "pstart": t.pstart, "starttime": t.start.Unix(), "status": "running",
	}
	if t.who.token != "" {
		d["tokenid"] = t.who.token
	}
	if t.exit != "" {
		d["status"], d["exitstatus"] = "stopped", t.exit
	}
	return d, nil
}

type logLine struct {
	N int    `json:"n"`
	T string `json:"t"`
}

func getTaskLog(r *request) (any, error) {
	t, err := r.upid("Sys.Audit")
	if err != nil {
		return nil, err
	}
	if t == nil {
		return counted{[]logLine{{1, "unable to open file - No such file or directory"}}, 1}, nil
	}
	start, limit := r.int("start", 0), r.int("limit", 50)
	lines := []logLine{}
	for i, s := range t.log {
		if i >= start && (limit == 0 || len(lines) < limit) {
			lines = append(lines, logLine{i + 1, s})
		}
	}
	return counted{lines, len(t.log)}, nil
}

func stopTask(r *request) (any, error) {
	t, err := r.upid("Sys.Modify")
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, paramErr("upid", "no such task")
	}
	t.stop()
	r.c.await(r.c.ctx, authDelay, func() bool { return t.exit != "" })
	return nil, nil
}

func (t *task) row() map[string]any {
	d := map[string]any{
		"upid": t.upid, "node": t.node, "type": t.typ, "id": t.id, "user": t.who.user,
		"pid": t.pid, "pstart": t.pstart, "starttime": t.start.Unix(), "status": "RUNNING",
	}
	if t.exit == "" {
		d["user"], d["saved"] = t.who.String(), "0"
		return d
	}
	if t.who.token != "" {
		d["tokenid"] = t.who.token
	}
	d["status"], d["endtime"] = t.exit, t.end.Unix()
	return d
}

func listTasks(r *request) (any, error) {
	audit := r.c.allowed(r.who, "/nodes/"+r.node.name, false, "Sys.Audit")
	source := r.params["source"]
	rows := []map[string]any{}
	for _, t := range slices.Backward(r.c.taskList) {
		running := t.exit == ""
		failed := !running && t.exit != "OK" && !strings.HasPrefix(t.exit, "WARNINGS")
		switch {
		case t.node != r.node.name,
			!audit && !r.who.owns(t.who.String()),
			(source == "" || source == "archive") && running,
			source == "active" && !running,
			r.flag("errors") && !failed,
			r.params["vmid"] != "" && t.id != r.params["vmid"],
			r.params["typefilter"] != "" && t.typ != r.params["typefilter"],
			r.params["userfilter"] != "" && !strings.Contains(t.who.String(), r.params["userfilter"]),
			t.start.Unix() < int64(r.int("since", 0)),
			r.params["until"] != "" && t.start.Unix() > int64(r.int("until", 0)):
			continue
		}
		rows = append(rows, t.row())
	}
	total := len(rows)
	start := min(r.int("start", 0), total)
	limit := r.int("limit", 50)
	end := total
	if limit > 0 {
		end = min(start+limit, total)
	}
	return counted{rows[start:end], total}, nil
}

func clusterTasks(r *request) (any, error) {
	rows := []map[string]any{}
	for _, t := range slices.Backward(r.c.taskList) {
		if len(rows) < 25 && (r.who.owns(t.who.String()) || r.c.allowed(r.who, "/nodes/"+t.node, false, "Sys.Audit")) {
			row := t.row()
			delete(row, "pid")
			delete(row, "pstart")
			row["saved"] = map[bool]string{true: "1", false: "0"}[t.exit != ""]
			rows = append(rows, row)
		}
	}
	return rows, nil
}
