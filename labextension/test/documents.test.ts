import { applyPatch } from 'rfc6902';
import { expect, it } from 'vitest';

import patches from '../../tests/fixtures/patches.json';
import { patched, type Patch } from '../src/model/documents.js';

interface ICase {
  before: object;
  patch: Patch;
  after: object;
}

const cases = patches as unknown as ICase[];

it.each(cases)('makes the next version as rfc6902 does: $patch', ({ before, patch, after }) => {
  const kept = JSON.stringify(before);
  expect(patched(before, patch)).toEqual(after);
  expect(JSON.stringify(before)).toBe(kept);
  const changed = structuredClone(before);
  expect(applyPatch(changed, structuredClone([...patch]) as never).every(e => e === null)).toBe(
    true
  );
  expect(changed).toEqual(after);
});

it('copies each part on the way to a change once, and no other', () => {
  const before = { rows: { 1: { a: 1, b: 1 }, 2: { a: 2 } }, list: [{ c: 1 }] };
  const after = patched(before, [
    { op: 'replace', path: '/rows/1/a', value: 3 },
    { op: 'replace', path: '/rows/1/b', value: 4 }
  ]);
  expect(after.rows[1]).toEqual({ a: 3, b: 4 });
  expect(after.rows[2]).toBe(before.rows[2]);
  expect(after.list).toBe(before.list);
});

it('changes nothing that came in an earlier patch', () => {
  const value = { a: 1 };
  const first = patched({}, [{ op: 'add', path: '/x', value }]);
  const second = patched(first, [{ op: 'replace', path: '/x/a', value: 2 }]);
  expect([first, second]).toEqual([{ x: { a: 1 } }, { x: { a: 2 } }]);
});

it('takes any name, also one that objects have', () => {
  const after = patched({}, [
    { op: 'add', path: '/__proto__', value: { polluted: 1 } },
    { op: 'add', path: '/constructor', value: 2 }
  ]);
  expect(JSON.stringify(after)).toBe('{"__proto__":{"polluted":1},"constructor":2}');
  expect('polluted' in {}).toBe(false);
});

it.each([
  [{ op: 'replace', path: '/none', value: 1 }],
  [{ op: 'remove', path: '/none' }],
  [{ op: 'remove', path: '/list/3' }],
  [{ op: 'add', path: '/none/at/all', value: 1 }],
  [{ op: 'add', path: '/text/-', value: 1 }],
  [{ op: 'replace', path: '/toString/name', value: 1 }]
] as const)('refuses %j, which belongs to another version', operation => {
  expect(() => patched({ list: [1], text: 'a' }, [operation])).toThrow('does not fit');
});
