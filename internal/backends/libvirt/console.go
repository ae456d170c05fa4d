package libvirt

import (
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What is shown of a console: its last lines, at most so many bytes of them.
const (
	consoleLines = 12
	consoleBytes = 1500
)

// lastWords are the last lines of a guest's console log, empty where there is none.
func (p place) lastWords(name string) string {
	f, err := os.Open(p.console(name))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	// Escapes and empty lines are left out, so more is read than is shown.
	if info, err := f.Stat(); err == nil && info.Size() > 4*consoleBytes {
		if _, err := f.Seek(-4*consoleBytes, io.SeekEnd); err != nil {
			return ""
		}
	}
	raw, err := io.ReadAll(io.LimitReader(f, 4*consoleBytes))
	if err != nil {
		return ""
	}
	return lastLines(string(raw))
}

// said introduces the last words of a console, if there are any.
func said(words string) string {
	if words == "" {
		return ""
	}
	return "; its console ends with:\n" + words
}

// lastLines makes a console's output readable in one message.
func lastLines(raw string) string {
	var lines []string
	for _, line := range strings.FieldsFunc(printable(raw), func(r rune) bool { return r == '\n' || r == '\r' }) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	lines = lines[max(0, len(lines)-consoleLines):]
	text := strings.Join(lines, "\n")
	if len(text) > consoleBytes {
		text = strings.ToValidUTF8(text[len(text)-consoleBytes:], "")
	}
	return text
}

// printable drops terminal escape sequences (ECMA-48: ESC [ … letter) and whatever else does
// not print.
func printable(raw string) string {
	var out strings.Builder
	escape := 0 // 1: after ESC, 2: in a control sequence
	for _, r := range raw {
		switch {
		case r == '\x1b':
			escape = 1
		case escape == 1 && r == '[':
			escape = 2
		case escape == 1:
			escape = 0
		case escape == 2:
			if r >= '@' && r <= '~' {
				escape = 0
			}
		case r == '\n' || r == '\r' || r == '\t' || unicode.IsPrint(r) && r != utf8.RuneError:
			out.WriteRune(r)
		}
	}
	return out.String()
}
