// @vitest-environment happy-dom
import type { TranslationBundle } from '@jupyterlab/translation';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { LinkBanner } from '../../../src/lab/connection/linkbanner.js';
import { DetJupyter } from '../../../src/lab/connection/connection.js';
import { english } from '../../../src/model/trans.js';
import { INFO, type IServer, RUNNING, fakeServer, lastSocket } from './fakes.js';

let server: IServer;
let shared: DetJupyter;
let banner: LinkBanner;

function start(answer: IServer['answer']): Promise<unknown> {
  server = fakeServer();
  server.answer = answer;
  shared = new DetJupyter(server.settings, english as TranslationBundle);
  banner = new LinkBanner(shared);
  document.body.replaceChildren(banner.node);
  return vi.advanceTimersByTimeAsync(0);
}

/** The buttons that can be seen. */
const buttons = (): string[] =>
  [...banner.node.querySelectorAll('button')]
    .filter(button => button.closest('[hidden]') === null)
    .map(button => button.textContent);

const button = (text: string): HTMLButtonElement =>
  [...banner.node.querySelectorAll('button')].find(
    ({ textContent }) => textContent === text
  ) as HTMLButtonElement;

beforeEach(() => vi.useFakeTimers());

afterEach(() => {
  banner.dispose();
  banner.dispose();
  shared.dispose();
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

it('is hidden while all is well, and says so only when connecting takes long', async () => {
  await start({ status: 200, body: INFO });
  expect(banner.node.hidden).toBe(true);
  await vi.advanceTimersByTimeAsync(1000);
  expect(banner.node.hidden).toBe(false);
  expect(banner.node.textContent).toContain('Connecting to det_jupyter…');
  lastSocket(server).hello();
  expect(banner.node.hidden).toBe(true);
});

it('names the command, with a button that copies it', async () => {
  await start({ status: 404, body: '' });
  expect(banner.node.hidden).toBe(false);
  expect(banner.node.querySelector('code')?.textContent).toBe(
    'jupyter server extension enable det_jupyter'
  );
  expect(buttons()).toEqual(['Copy', 'Try again']);
});

it('tries again at a click', async () => {
  await start(new TypeError('Failed to fetch'));
  expect(buttons()).toEqual(['Try again']);
  server.answer = { status: 200, body: INFO };
  button('Try again').click();
  await vi.advanceTimersByTimeAsync(0);
  lastSocket(server).hello();
  expect(banner.node.hidden).toBe(true);
});

it('starts the master, or says why that was refused', async () => {
  await start({ status: 200, body: { ...INFO, master: { ...RUNNING, state: 'stopped' } } });
  lastSocket(server).hello({ master: { ...RUNNING, state: 'stopped' } });
  expect(buttons()).toEqual(['Start the master', 'Try again']);
  server.answer = {
    status: 503,
    body: { error: 'MasterUnreachable', problems: [{ path: '', text: 'Disk full.' }] }
  };
  button('Start the master').click();
  await vi.advanceTimersByTimeAsync(0);
  expect(banner.node.textContent).toContain('Disk full.');
  server.answer = { status: 200, body: INFO };
  button('Start the master').click();
  await vi.advanceTimersByTimeAsync(0);
  expect(server.requests.some(({ url }) => url.includes('det-jupyter/master/start'))).toBe(true);
  expect(banner.node.hidden).toBe(true);
});

it('what the server says is text', async () => {
  const problems = [{ path: '', text: '<img src=x onerror=alert(1)>' }];
  await start({ status: 403, body: { error: 'Forbidden', problems } });
  expect(banner.node.querySelector('img')).toBeNull();
  expect(banner.node.textContent).toContain('<img');
  expect(buttons()).toEqual(['Try again', 'Reload the page']);
});
