// A Go program on a Gangway cluster, without JAX and without Python: go-xla builds StableHLO in Go and loads
// libgangway_pjrt.so as it loads any PJRT plugin. It prints what it computes; a wrong number is a failure.
//
//	bin/gangway up --devices 2 --detach
//	cd examples/go_client && go run . ../../bin/libgangway_pjrt.so
//
// Go 1.24 or later and a C compiler build it; tools/go.sh is the Go that the tests use.
// GANGWAY_PORT and GANGWAY_STATE_DIR name a cluster other than the default one. Options of the plugin could also be
// passed to NewClient, as in pjrt.NamedValuesMap{"port": "38700"}.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gomlx/go-xla/pkg/pjrt"
	"github.com/gomlx/go-xla/pkg/stablehlo"
	"github.com/gomlx/go-xla/pkg/types/dtypes"
	"github.com/gomlx/go-xla/pkg/types/shapes"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . PATH/libgangway_pjrt.so")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(library string) error {
	path, err := filepath.Abs(library) // go-xla searches its folders for what is not absolute
	if err != nil {
		return err
	}
	plugin, err := pjrt.GetPlugin(path)
	if err != nil {
		return err
	}
	client, err := plugin.NewClient(nil)
	if err != nil {
		return err
	}
	defer client.Destroy()
	fmt.Printf("platform %s, %d devices\n", client.Platform(), client.NumDevices())

	for _, part := range []func(*pjrt.Client) error{square, matmul, allReduce, refused} {
		if err := part(client); err != nil {
			return err
		}
	}
	return nil
}

// square computes x*x+1 on each device in turn: one executable, which is not bound to a device.
func square(client *pjrt.Client) error {
	program, err := squareProgram()
	if err != nil {
		return err
	}
	executable, err := client.Compile().WithStableHLO(program).Done()
	if err != nil {
		return err
	}
	defer executable.Destroy()
	for number := range client.NumDevices() {
		first := float32(10 * number)
		x := []float32{first, first + 1, first + 2, first + 3, first + 4, first + 5}
		input, err := client.BufferFromHost().
			FromFlatDataWithDimensions(x, []int{2, 3}).ToDeviceNum(number).Done()
		if err != nil {
			return err
		}
		outputs, err := executable.Execute(input).OnDeviceByNum(number).Done()
		if err != nil {
			return err
		}
		y, dimensions, err := pjrt.BufferToArray[float32](outputs[0])
		if err != nil {
			return err
		}
		device, err := outputs[0].Device()
		if err != nil {
			return err
		}
		fmt.Printf("device %d: x*x+1 = %v %v\n", client.NumForDevice(device), dimensions, y)
		for i := range x {
			x[i] = x[i]*x[i] + 1
		}
		if !slices.Equal(x, y) || !slices.Equal(dimensions, []int{2, 3}) ||
			client.NumForDevice(device) != number {
			return fmt.Errorf("x*x+1 on device %d is %v %v, not %v", number, dimensions, y, x)
		}
	}
	return nil
}

func squareProgram() ([]byte, error) {
	builder := stablehlo.New("square")
	function := builder.Main()
	shape := shapes.Make(dtypes.F32, 2, 3)
	x, err := function.NamedInput("x", shape)
	if err != nil {
		return nil, err
	}
	one, err := function.ConstantFromFlatAndDimensions([]float32{1, 1, 1, 1, 1, 1}, 2, 3)
	if err != nil {
		return nil, err
	}
	squared, err := stablehlo.Multiply(x, x)
	if err != nil {
		return nil, err
	}
	sum, err := stablehlo.Add(squared, one)
	if err != nil {
		return nil, err
	}
	if err := function.Return(sum); err != nil {
		return nil, err
	}
	return builder.Build()
}

// matmul multiplies matrices of the last device, and hands the product to the first one.
func matmul(client *pjrt.Client) error {
	const program = `
!a = tensor<2x3xf32>
!b = tensor<3x2xf32>
!c = tensor<2x2xf32>
func.func @main(%a: !a, %b: !b) -> !c {
  %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (!a, !b) -> !c
  return %c : !c
}`
	executable, err := client.Compile().WithStableHLO([]byte(program)).Done()
	if err != nil {
		return err
	}
	defer executable.Destroy()
	last := client.NumDevices() - 1
	values := []float32{1, 2, 3, 4, 5, 6}
	var inputs []*pjrt.Buffer
	for _, dimensions := range [][]int{{2, 3}, {3, 2}} {
		input, err := client.BufferFromHost().
			FromFlatDataWithDimensions(values, dimensions).ToDeviceNum(last).Done()
		if err != nil {
			return err
		}
		inputs = append(inputs, input)
	}
	outputs, err := executable.Execute(inputs...).OnDeviceByNum(last).Done()
	if err != nil {
		return err
	}
	moved, err := outputs[0].CopyToDevice(client.AddressableDevices()[0])
	if err != nil {
		return err
	}
	product, _, err := pjrt.BufferToArray[float32](moved)
	if err != nil {
		return err
	}
	fmt.Printf("device %d: a@b, copied to device 0 = %v\n", last, product)
	if !slices.Equal(product, []float32{22, 28, 49, 64}) {
		return fmt.Errorf("a@b is %v", product)
	}
	return nil
}

// allReduce sums over all devices in one call.
func allReduce(client *pjrt.Client) error {
	count := client.NumDevices()
	program, err := allReduceProgram(client, count)
	if err != nil {
		return err
	}
	executable, err := client.Compile().WithStableHLO(program).WithSPMD(count).Done()
	if err != nil {
		return err
	}
	defer executable.Destroy()
	want := []float32{0, 0}
	var inputs []*pjrt.Buffer
	for number := range count {
		x := []float32{float32(number + 1), float32(10 * (number + 1))}
		input, err := client.BufferFromHost().
			FromFlatDataWithDimensions(x, []int{2}).ToDeviceNum(number).Done()
		if err != nil {
			return err
		}
		inputs = append(inputs, input)
		want[0] += x[0]
		want[1] += x[1]
	}
	outputs, err := executable.Execute(inputs...).Done()
	if err != nil {
		return err
	}
	for number, output := range outputs {
		sum, _, err := pjrt.BufferToArray[float32](output)
		if err != nil {
			return err
		}
		if !slices.Equal(sum, want) {
			return fmt.Errorf("the sum on device %d is %v, not %v", number, sum, want)
		}
	}
	fmt.Printf("all %d devices: sum = %v\n", len(outputs), want)
	return nil
}

func allReduceProgram(client *pjrt.Client, count int) ([]byte, error) {
	assignment, err := client.DefaultDeviceAssignment(count, 1)
	if err != nil {
		return nil, err
	}
	builder := stablehlo.New("all_reduce")
	function := builder.Main()
	x, err := function.NamedInput("x", shapes.Make(dtypes.F32, 2))
	if err != nil {
		return nil, err
	}
	add := function.Closure()
	left, err := add.NamedInput("left", shapes.Make(dtypes.F32))
	if err != nil {
		return nil, err
	}
	right, err := add.NamedInput("right", shapes.Make(dtypes.F32))
	if err != nil {
		return nil, err
	}
	sum, err := stablehlo.Add(left, right)
	if err != nil {
		return nil, err
	}
	if err := add.Return(sum); err != nil {
		return nil, err
	}
	sums, err := stablehlo.AllReduce([]*stablehlo.Value{x}, [][]int{assignment}, add)
	if err != nil {
		return nil, err
	}
	if err := function.Return(sums...); err != nil {
		return nil, err
	}
	return builder.Build()
}

// refused shows that a bad program is an error of the call, after which the client still works.
func refused(client *pjrt.Client) error {
	executable, err := client.Compile().WithStableHLO([]byte("module { this is not a program }")).Done()
	if err == nil {
		executable.Destroy()
		return fmt.Errorf("a text that is no program was compiled")
	}
	fmt.Println("a bad program is refused:", err)
	return square(client)
}
