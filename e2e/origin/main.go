// Command origin is the web server at the far end of a demonstration: it answers every
// request with the address that it came from, which is the proxy's.
//
//	origin -listen 127.0.0.1:0     prints its URL, then serves until it is killed
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	flag.Parse()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "origin:", err)
		os.Exit(1)
	}
	fmt.Printf("http://%s/\n", l.Addr())
	err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from the origin: you came from %s\n", r.RemoteAddr)
	}))
	fmt.Fprintln(os.Stderr, "origin:", err)
	os.Exit(1)
}
