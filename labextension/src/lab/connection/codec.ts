/** Decodes frames: text is JSON, binary is JSON with columns (det_jupyter/contract/messages/pages.py). */
import type { Incoming } from './readerframes.js';

const COLUMN = '$f64';
const isLittleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

/**
 * Returns the frame that a message of the socket carries.
 *
 * @throws What is no frame: `SyntaxError` or `RangeError`.
 */
export function decode(message: string | ArrayBuffer): Incoming {
  return typeof message === 'string'
    ? (JSON.parse(message) as Incoming)
    : (decodeBinary(message) as Incoming);
}

/** Returns the header's JSON with its columns as lists; NaN becomes null. */
function decodeBinary(message: ArrayBuffer): unknown {
  const length = new DataView(message).getUint32(0, true);
  const header = new TextDecoder().decode(new Uint8Array(message, 4, length));
  const columns = columnsOf(message, 4 + length);
  return filled(JSON.parse(header), columns);
}

/** Replaces references to columns by lists; changes `value`. */
function filled(value: unknown, columns: Float64Array): unknown {
  if (typeof value !== 'object' || value === null) {
    return value;
  }
  if (COLUMN in value) {
    return listOf(columns, value[COLUMN] as [number, number, boolean]);
  }
  const members = value as Record<string, unknown>; // or an array
  for (const key of Object.keys(members)) {
    members[key] = filled(members[key], columns);
  }
  return value;
}

function columnsOf(message: ArrayBuffer, from: number): Float64Array {
  if (isLittleEndian) {
    return new Float64Array(message, from);
  }
  const view = new DataView(message, from);
  return Float64Array.from({ length: view.byteLength / 8 }, (_, i) => view.getFloat64(8 * i, true));
}

function listOf(
  columns: Float64Array,
  [first, length]: [number, number, boolean]
): (number | null)[] {
  if (first < 0 || first + length > columns.length) {
    throw new RangeError(`a column of ${length} numbers at ${first}: there are ${columns.length}`);
  }
  // Much faster than mapping each number; NaN is rare.
  const list: (number | null)[] = Array.from(columns.subarray(first, first + length));
  for (let i = 0; i < length; i++) {
    if (Number.isNaN(list[i])) {
      list[i] = null;
    }
  }
  return list;
}
