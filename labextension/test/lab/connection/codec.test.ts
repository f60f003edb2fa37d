import { readFileSync } from 'node:fs';

import { expect, it } from 'vitest';

import { decode } from '../../../src/lab/connection/codec.js';

interface IVector {
  name: string;
  frame: unknown;
  text?: string;
  base64?: string;
}

const file = new URL('../../../../tests/fixtures/frames.json', import.meta.url);
const vectors = JSON.parse(readFileSync(file, 'utf8')) as IVector[];

function bytesOf(base64: string): ArrayBuffer {
  return Uint8Array.from(atob(base64), char => char.charCodeAt(0)).buffer;
}

it.each(vectors)('what Python packs is read: $name', ({ frame, text, base64 }) => {
  expect(decode(text ?? bytesOf(base64 ?? ''))).toEqual(frame);
});

it('what is cut short is refused', () => {
  const whole = bytesOf(vectors.find(({ base64 }) => base64 !== undefined)?.base64 ?? '');
  expect(() => decode(whole.slice(0, whole.byteLength - 8))).toThrow(RangeError);
  expect(() => decode(whole.slice(0, 3))).toThrow(RangeError);
  expect(() => decode('{"op"')).toThrow(SyntaxError);
});
