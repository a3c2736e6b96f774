// name: parameter-that-is-a-tuple
// tries: A tuple beside another parameter.
// expect: fails
module @m { func.func public @main(%x: tuple<tensor<4xf32>, tensor<8xf32>>, %y: tensor<4xf32>) -> tensor<4xf32> {
  return %y : tensor<4xf32>
} }
// -----
// name: result-of-nested-tuples
// tries: A tuple among the results.
// expect: fails
module @m { func.func public @main(%x: tensor<4xf32>) -> (tuple<tensor<4xf32>>, tensor<4xf32>) {
  %t = stablehlo.tuple %x : tuple<tensor<4xf32>>
  return %t, %x : tuple<tensor<4xf32>>, tensor<4xf32>
} }
// -----
// name: donated-twice
// tries: One array for two parameters, both of which give their memory to results.
// expect: harmless
// arguments: same
module @m { func.func public @main(%x: tensor<65536xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<65536xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<65536xf32>, tensor<65536xf32>) {
  %a = stablehlo.add %x, %y : tensor<65536xf32>
  %b = stablehlo.multiply %x, %y : tensor<65536xf32>
  return %a, %b : tensor<65536xf32>, tensor<65536xf32>
} }
// -----
// name: donated-and-read
// tries: One array for a parameter that gives its memory to the result, and for one that does not.
// expect: harmless
// arguments: same
module @m { func.func public @main(%x: tensor<65536xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<65536xf32>) -> tensor<65536xf32> {
  %a = stablehlo.reverse %y, dims = [0] : tensor<65536xf32>
  %b = stablehlo.subtract %x, %a : tensor<65536xf32>
  return %b : tensor<65536xf32>
} }
// -----
// name: arguments-that-are-short
// tries: Arrays of half as many elements as the parameters have.
// expect: harmless
// arguments: short
module @m { func.func public @main(%x: tensor<65536xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<65536xi8>) -> tensor<65536xf32> {
  %a = stablehlo.convert %y : (tensor<65536xi8>) -> tensor<65536xf32>
  %b = stablehlo.add %x, %a : tensor<65536xf32>
  return %b : tensor<65536xf32>
} }
// -----
// name: layout-of-no-order
// tries: A layout of a parameter, as StableHLO names it, that is no permutation.
// expect: harmless
module @m { func.func public @main(%x: tensor<64x64xf32> {mhlo.layout_mode = "{0,0}"}) -> (tensor<64x64xf32> {mhlo.layout_mode = "{7,9}"}) {
  %y = stablehlo.negate %x : tensor<64x64xf32>
  return %y : tensor<64x64xf32>
} }
// -----
// name: layout-of-tiles
// tries: A layout of tiles, whose arrays are larger than their elements.
// expect: harmless
module @m { func.func public @main(%x: tensor<5x5xf32> {mhlo.layout_mode = "{1,0:T(8,128)}"}) -> (tensor<5x5xf32> {mhlo.layout_mode = "{1,0:T(8,128)}"}) {
  %y = stablehlo.negate %x : tensor<5x5xf32>
  return %y : tensor<5x5xf32>
} }
// -----
// name: layout-of-wide-elements
// tries: A layout with elements of a kilobyte.
// expect: harmless
module @m { func.func public @main(%x: tensor<64xf32> {mhlo.layout_mode = "{0:E(8192)}"}) -> (tensor<64xf32> {mhlo.layout_mode = "{0:E(8192)}"}) {
  %y = stablehlo.negate %x : tensor<64xf32>
  return %y : tensor<64xf32>
} }
// -----
// name: layout-in-another-memory
// tries: A layout in a memory that the device does not have.
// expect: harmless
module @m { func.func public @main(%x: tensor<64xf32> {mhlo.layout_mode = "{0:S(77)}"}) -> (tensor<64xf32> {mhlo.layout_mode = "{0:S(5)}"}) {
  %y = stablehlo.negate %x : tensor<64xf32>
  return %y : tensor<64xf32>
} }
// -----
// name: layout-of-no-meaning
// tries: A text that is no layout.
// expect: harmless
module @m { func.func public @main(%x: tensor<64xf32> {mhlo.layout_mode = "{{{{"}) -> (tensor<64xf32> {mhlo.layout_mode = ""}) {
  %y = stablehlo.negate %x : tensor<64xf32>
  return %y : tensor<64xf32>
} }
// -----
// name: memory-of-no-name
// tries: Memories that the device does not have.
// expect: harmless
module @m { func.func public @main(%x: tensor<64xf32> {mhlo.memory_kind = "nowhere"}) -> (tensor<64xf32> {mhlo.memory_kind = "\1B[2J"}) {
  %y = stablehlo.negate %x : tensor<64xf32>
  return %y : tensor<64xf32>
} }
// -----
// name: narrow-elements-in-another-layout
// tries: Elements of less than a byte, which are laid out as the text says.
// expect: harmless
module @m { func.func public @main(%x: tensor<33x31xi4> {mhlo.layout_mode = "{0,1:E(8)}"}) -> (tensor<33x31xi4> {mhlo.layout_mode = "{0,1:E(4)}"}) {
  %y = stablehlo.negate %x : tensor<33x31xi4>
  return %y : tensor<33x31xi4>
} }
