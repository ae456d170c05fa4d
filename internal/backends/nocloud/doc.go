// Package nocloud builds the seed that cloud-init's NoCloud data source reads in a guest:
// a small ISO 9660 image with the label "cidata" and the files meta-data, user-data,
// vendor-data and network-config.
//
// It imports the standard library only and makes nothing but bytes: no temporary files,
// so it works on a read-only root and leaves no secret behind. The same input gives the
// same bytes.
//
// # Whose part goes where
//
// user-data belongs to the person who wrote the intent and reaches the guest byte for
// byte, whatever its format. What proxyfleet needs in the guest travels beside it, in
// vendor-data: a MIME multi-part document with the operator's own vendor-data first and
// the bootstrap script of [Bootstrap] last. cloud-init merges both key by key: where
// user-data has a key that the operator's document has too, its value replaces the
// operator's, lists included. The bootstrap is a script and is never replaced.
//
// cloud-init ignores vendor-data altogether when the user-data says so
// (vendor_data: {enabled: false}); such a guest must bring its own proxy and guest agent.
//
// Sources: https://cloudinit.readthedocs.io/en/latest/reference/datasources/nocloud.html
// and https://cloudinit.readthedocs.io/en/latest/explanation/vendordata.html
package nocloud
