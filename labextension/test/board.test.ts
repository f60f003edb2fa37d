// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { BoardButton } from '../src/metrics/board.js';
import { english } from '../src/model/trans.js';
import type { Ask } from '../src/model/questions.js';

const URL = 'http://localhost:6006/';
const ANSWER = { url: URL, tunnel: 'ssh -NL 6006:localhost:6006 box' };

let opened: ReturnType<typeof vi.spyOn>;

beforeEach(() => {
  vi.stubGlobal('location', { hostname: 'localhost' });
  opened = vi.spyOn(window, 'open').mockReturnValue(null);
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

function press(answer: Promise<unknown>): BoardButton {
  const ask = vi.fn(() => answer) as unknown as Ask;
  const requests = { trans: english, onCommand: () => Promise.resolve(), slowHint: '' };
  const board = new BoardButton(requests, ask);
  board.button.click();
  expect(board.button.getAttribute('aria-busy')).toBe('true');
  board.button.click();
  expect(ask).toHaveBeenCalledExactlyOnceWith('tensorboard', {});
  return board;
}

const isFree = (board: BoardButton): Promise<unknown> =>
  vi.waitFor(() => expect(board.button.getAttribute('aria-busy')).toBeNull());

it('opens the page, and shows its address and the line for a browser elsewhere', async () => {
  const board = press(Promise.resolve(ANSWER));
  await isFree(board);
  expect(opened).toHaveBeenCalledWith(URL, '_blank', 'noopener');
  expect(board.node.querySelector('a')?.href).toBe(URL);
  expect(board.node.querySelector('code')?.textContent).toBe(ANSWER.tunnel);
});

it('opens nothing where the page would be that of another computer', async () => {
  vi.stubGlobal('location', { hostname: 'hub.example.org' });
  const board = press(Promise.resolve(ANSWER));
  await isFree(board);
  expect(opened).not.toHaveBeenCalled();
  expect(board.node.querySelector('a')?.href).toBe(URL);
});

it('shows why there is none', async () => {
  const board = press(Promise.reject(new Error('the package tensorboard is not installed')));
  await isFree(board);
  expect(board.node.querySelector('.det-notice')?.textContent).toContain('is not installed');
  expect(board.node.querySelector('a')).toBeNull();
});
