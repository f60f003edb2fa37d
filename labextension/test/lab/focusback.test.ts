// @vitest-environment happy-dom
import { afterEach, expect, test, vi } from 'vitest';

import { noteMenuOf, returningFocus } from '../../src/lab/focusback.js';

function focusable(): HTMLElement {
  const node = document.createElement('div');
  node.tabIndex = 0;
  document.body.append(node);
  return node;
}

afterEach(() => document.body.replaceChildren());

test('the list of a menu gets the focus that a dialog has left on nothing', async () => {
  const list = focusable();
  noteMenuOf(list);
  expect(await returningFocus(Promise.resolve('yes'))).toBe('yes');
  await vi.waitFor(() => expect(document.activeElement).toBe(list));
});

test('an element that has the focus keeps it, and a later dialog returns to no list', async () => {
  const [list, other] = [focusable(), focusable()];
  noteMenuOf(list);
  other.focus();
  await returningFocus(Promise.resolve());
  await new Promise(done => requestAnimationFrame(done));
  expect(document.activeElement).toBe(other);
  other.blur();
  await returningFocus(Promise.resolve());
  await new Promise(done => requestAnimationFrame(done));
  expect(document.activeElement).toBe(document.body);
});
