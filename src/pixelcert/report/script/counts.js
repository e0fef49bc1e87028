/* Packed counts. Pure: no element of the page is touched, so that a test can run it without a browser. */

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** What the library's `pack` packed: a line of JSON, then planes of counts as differences from pixel to pixel. */
async function unpack(packed) {
  const bytes = await inflate(packed);
  const end = bytes.indexOf(10);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  const Kind = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array }[header.bytes];
  const counts = new Kind(bytes.slice(end + 1).buffer);
  for (let i = 1; i < counts.length; i++) counts[i] += counts[i - 1]; // wraps around, as it should
  return { ...header, counts };
}
