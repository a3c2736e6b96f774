// What Go's garbage collector does to a client: it may destroy executables and buffers after it. The environment
// variable GANGWAY_PJRT_PLUGIN names the plugin.
package main

import (
	"os"
	"runtime"
	"testing"

	"github.com/gomlx/go-xla/pkg/pjrt"
)

func TestExecutablesMayBeDestroyedAfterTheirClient(t *testing.T) {
	plugin, err := pjrt.GetPlugin(os.Getenv("GANGWAY_PJRT_PLUGIN"))
	if err != nil {
		t.Fatal(err)
	}
	program, err := squareProgram()
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		client, err := plugin.NewClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		portable, err := client.Compile().WithStableHLO(program).Done()
		if err != nil {
			t.Fatal(err)
		}
		bound, err := client.Compile().WithStableHLO(program).WithSPMD(1).Done()
		if err != nil {
			t.Fatal(err)
		}
		input, err := pjrt.ArrayToBuffer(client, make([]float32, 6), 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bound.Execute(input).Done(); err != nil { // its result is left to the collector
			t.Fatal(err)
		}
		if err := client.Destroy(); err != nil {
			t.Fatal(err)
		}
		if err := portable.Destroy(); err != nil {
			t.Fatal(err)
		}
		if err := bound.Destroy(); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
	}
}
