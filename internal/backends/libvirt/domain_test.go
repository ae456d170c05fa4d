package libvirt

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

var update = flag.Bool("update", false, "write the golden files anew")

const testUID = "01jx0000000000000000000001"

func testBlueprint() blueprint {
	return blueprint{
		mark: domainMark{Mark: backends.Mark{
			Installation: "01installation", HostID: "01host", Proxy: "crawl-1", UID: testUID,
			CreatedAt: time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC),
		}, Generation: 3, Port: 3128},
		vcpus: 2, memoryMiB: 1024,
		firmware: "uefi", virt: "kvm", cpuMode: "host-model",
		network: Network{LibvirtNetwork: "default"},
		at:      testAttachment("qcow2"),
	}
}

// testAttachment is of a pool that is a directory, with a base of a format.
func testAttachment(format string) attachment {
	at, _ := place{dir: "/var/lib/libvirt/images"}.attach(nil, backends.InstanceName(testUID),
		images.Base{Path: "/var/lib/libvirt/images/pf-base-0123456789abcdef01234567." + format, Format: format})
	return at
}

func TestDomainsAreDescribedAsThePeopleWhoReadThemExpect(t *testing.T) {
	for name, change := range map[string]func(*blueprint){
		"uefi-kvm-network": func(*blueprint) {},
		"bios-tcg-bridge-vlan-raw": func(p *blueprint) {
			p.firmware, p.virt, p.cpuMode = "bios", "qemu", "maximum"
			p.network = Network{Bridge: "br0", OpenVSwitch: true, VLAN: 7}
			p.at = testAttachment("raw")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := testBlueprint()
			change(&p)
			got, err := p.render()
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".xml")
			if *update {
				if err := os.WriteFile(golden, []byte(got+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
				t.Errorf("run with -update if this is meant (-want +got):\n%s", diff)
			}
		})
	}
}

func TestADomainNamesNoEmulatorAndNoVolume(t *testing.T) {
	got, err := testBlueprint().render()
	if err != nil {
		t.Fatal(err)
	}
	for _, no := range []string{"<emulator>", `type="volume"`, "autostart"} {
		if strings.Contains(got, no) {
			t.Errorf("it has %s", no)
		}
	}
}

func TestMACAndUUIDAreStableAndOfTheirUIDOnly(t *testing.T) {
	if got, want := macAddress(testUID), "52:54:00:d0:9b:af"; got != want {
		t.Errorf("MAC: got %s, want %s, which guests have already", got, want)
	}
	if got, want := domainUUID(testUID), "bfdc86e6-7147-80a7-bd59-bf26a1533977"; got != want {
		t.Errorf("UUID: got %s, want %s, which guests have already", got, want)
	}
	if macAddress("a") == macAddress("b") || domainUUID("a") == domainUUID("b") {
		t.Error("two uids share an identity")
	}
}

func TestAMarkSurvivesItsWriting(t *testing.T) {
	want := testBlueprint().mark
	got, err := parseMark(want.element())
	if err != nil || got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
}

func TestAMarkIsReadWithoutItsNamespaceToo(t *testing.T) {
	want := testBlueprint().mark
	for name, text := range map[string]string{
		"none":       strings.Replace(want.element(), ` xmlns="`+markNamespace+`"`, "", 1),
		"undeclared": strings.Replace(strings.Replace(strings.Replace(want.element(), ` xmlns="`+markNamespace+`"`, "", 1), "<instance", "<proxyfleet:instance", 1), "</instance", "</proxyfleet:instance", 1),
	} {
		if got, err := parseMark(text); err != nil || got != want {
			t.Errorf("%s: got %+v (%v), want %+v", name, got, err, want)
		}
	}
}

func TestAMarkThatIsNotWholeIsAnErrorAndNotNobodys(t *testing.T) {
	whole := testBlueprint().mark.element()
	for _, text := range []string{
		"", "<", "<instance/>", whole[:len(whole)/2], strings.Replace(whole, "uid=", "gid=", 1),
		strings.Replace(whole, `generation="3"`, `generation="x"`, 1), strings.Replace(whole, `port="3128"`, "", 1),
		strings.ReplaceAll(whole, "instance xmlns", "other xmlns"),
	} {
		if m, err := parseMark(text); err == nil {
			t.Errorf("%q was read as %+v", text, m)
		}
	}
	if m, err := parseMark(strings.Replace(whole, "2026-11", "soon", 1)); err != nil || !m.CreatedAt.IsZero() {
		t.Errorf("an unreadable time: got %v, %v, want zero", m.CreatedAt, err)
	}
}

func FuzzParseMark(f *testing.F) {
	f.Add(testBlueprint().mark.element())
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMark(text)
		if err == nil && (m.UID == "" || m.Installation == "" || m.HostID == "") {
			t.Errorf("%q has nobody's mark", text)
		}
	})
}
