// Package sim is a backend that makes nothing: its instances are records in memory or in a
// directory. It serves benchmarks, load trials and failure tests of everything above the
// contract, and is the first to pass the conformance suite.
//
// It imports the contract and the standard library.
//
// # Scripts
//
// An intent scripts how its own instance behaves, with lines of its cloud-init that begin
// with "#sim"; a line may have several directives:
//
//	#cloud-config
//	#sim slow=2s steps=5
//	#sim ensure-error=NoCapacity times=2
//
//	ensure-error=CLASS  Ensure fails with the class before it makes anything
//	get-error=CLASS     Get fails with the class (and List reports the instance as unread)
//	delete-error=CLASS  Delete fails with the class before it removes anything
//	times=N             the errors above end after N of each, for each opened backend; 0, the default: never
//	slow=DURATION       Ensure takes this long to make the instance, shared out over its steps
//	steps=N             progress reports of a slow Ensure; default 4
//	slow-delete=DURATION Delete takes this long
//	no-address=DURATION no address is known for this long after each start
//	crash-after=DURATION the instance crashes this long after each start
//	vanish-after=DURATION the instance disappears this long after each start; its disk is left over
//
// CLASS is a name of an error class as in [backends.Class]. A directive that cannot be read
// is ErrPermanent.
//
// # Addresses and ports
//
// An address follows from the uid, inside [Config.Network], and is not checked for
// uniqueness; nothing listens there. Port 0 becomes a port that follows from the uid.
//
// # State
//
// With [Config.State] every object is a file in that directory, replaced by rename and not
// synced unless asked, so that instances survive a restart of the agent but perhaps not of
// the machine. Without it they live as long as the [World].
package sim
