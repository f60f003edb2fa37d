// @vitest-environment happy-dom
import type { TranslationBundle } from '@jupyterlab/translation';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { DetJupyter } from '../../../src/lab/connection/connection.js';
import { VERSION } from '../../../src/lab/connection/version.js';
import type { LinkState } from '../../../src/lab/tokens.js';
import { english } from '../../../src/model/trans.js';
import { INFO, type IServer, RUNNING, fakeServer, lastSocket } from './fakes.js';

let server: IServer;
let shared: DetJupyter;
let states: LinkState[];
let visibility: DocumentVisibilityState;

function start(answer: IServer['answer'] = { status: 200, body: INFO }): void {
  server = fakeServer();
  server.answer = answer;
  shared = new DetJupyter(server.settings, english as TranslationBundle);
  states = [];
  shared.linkChanged.connect((_, { state }) => states.push(state));
}

/** Lets the request that is under way be answered. */
const settle = (): Promise<unknown> => vi.advanceTimersByTimeAsync(0);
const wait = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

/** Connects to a server where nothing is wrong. */
async function connect(): Promise<void> {
  start();
  await settle();
  lastSocket(server).hello();
}

function setVisibility(value: DocumentVisibilityState): void {
  visibility = value;
  document.dispatchEvent(new Event('visibilitychange'));
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(Math, 'random').mockReturnValue(1);
  visibility = 'visible';
  vi.spyOn(document, 'visibilityState', 'get').mockImplementation(() => visibility);
});

afterEach(() => {
  shared.dispose();
  shared.dispose();
  expect(vi.getTimerCount()).toBe(0);
  vi.restoreAllMocks();
  vi.useRealTimers();
});

it('is up after the handshake and the greeting', async () => {
  start();
  expect(shared.link.state).toBe('connecting');
  await settle();
  expect(shared.link.mayWrite).toBe(true);
  expect(shared.link.state).toBe('connecting');
  lastSocket(server).hello();
  expect(shared.link).toMatchObject({ state: 'up', sentence: '', command: '' });
});

it('a server without the extension: the command that enables it', async () => {
  start({ status: 404, body: '<html>' });
  await settle();
  expect(shared.link.state).toBe('no-extension');
  expect(shared.link.command).toBe('jupyter server extension enable det_jupyter');
  expect(server.sockets).toEqual([]);
  server.answer = { status: 200, body: INFO };
  await wait(60_000); // it may have been restarted
  expect(server.sockets).toHaveLength(1);
});

it('an authorizer that refuses is quoted, and so is one that lets nothing be seen', async () => {
  start({
    status: 403,
    body: { error: 'Forbidden', problems: [{ path: '', text: 'Ask the owner of this server.' }] }
  });
  await settle();
  expect(shared.link).toMatchObject({
    state: 'refused',
    sentence: 'Ask the owner of this server.'
  });
  server.answer = { status: 200, body: { ...INFO, may_read: false, may_write: false } };
  shared.retry();
  await settle();
  expect(shared.link.state).toBe('refused');
  expect(shared.link.sentence).toMatch(/no access to experiments/);
  expect(server.sockets).toEqual([]);
});

it('a login that has ended says what to do', async () => {
  start({ status: 403, body: { message: 'Forbidden' } });
  await settle();
  expect(shared.link).toMatchObject({ state: 'refused' });
  expect(shared.link.sentence).toMatch(/reload it, and log in/);
});

it('a server that is newer than the page: reload', async () => {
  start({ status: 200, body: { ...INFO, version: '9.10.0' } });
  await settle();
  expect(shared.link.state).toBe('mismatch');
  expect(shared.link.sentence).toContain(`of det_jupyter ${VERSION}`);
  expect(shared.link.sentence).toContain('has 9.10.0: reload the page');
  expect(shared.link.command).toBe('pip install --force-reinstall --no-deps det-jupyter==9.10.0');
});

it('a server that is older than the page: restart it', async () => {
  start({ status: 200, body: { ...INFO, version: '0.0.9' } });
  await settle();
  expect(shared.link.state).toBe('mismatch');
  expect(shared.link.sentence).toContain('restart the Jupyter server');
  expect(shared.link.command).toBe(`pip install --upgrade det-jupyter==${VERSION}`);
});

it('a reader of another version, started after an installation, is said', async () => {
  await connect();
  lastSocket(server).cut();
  await wait(500);
  lastSocket(server).hello({ version: '9.10.0', protocol: 99 });
  expect(shared.link.state).toBe('mismatch');
  expect(shared.link.sentence).toContain('9.10.0');
  expect(lastSocket(server).isClosed).toBe(true);
});

it('a master that is absent, of another version, or silent, and that comes', async () => {
  await connect();
  const socket = lastSocket(server);
  const master = (fields: object): void => socket.say({ op: 'master', ...RUNNING, ...fields });
  master({ state: 'stopped' });
  expect(shared.link.state).toBe('no-master');
  expect(shared.link.sentence).not.toBe('');
  master({ state: 'mismatch', problem: 'It is 0.0.1.', command: 'python -m det stop' });
  expect(shared.link).toMatchObject({
    state: 'mismatch',
    sentence: 'It is 0.0.1.',
    command: 'python -m det stop'
  });
  master({ state: 'silent', problem: 'Process 7 does not answer.', command: 'kill 7' });
  expect(shared.link).toMatchObject({ state: 'no-master', command: 'kill 7' });
  master({ state: 'starting' });
  expect(shared.link.state).toBe('connecting');
  master({});
  expect(shared.link.state).toBe('up');
});

it('a server that greets without a master, and the reader that greets when one runs', async () => {
  start();
  await settle();
  const socket = lastSocket(server);
  socket.hello({ instance: '', master: { ...RUNNING, state: 'starting' } });
  expect(shared.link).toMatchObject({ state: 'connecting', sentence: 'The master is starting.' });
  socket.hello();
  expect(shared.link.state).toBe('up');
  await wait(60_000); // it has started in time
  expect(shared.link.state).toBe('up');
});

it('a master that starts for more than a minute is not waited for silently', async () => {
  await connect();
  lastSocket(server).say({ op: 'master', ...RUNNING, state: 'starting' });
  expect(shared.link.sentence).toBe('The master is starting.');
  await wait(60_000);
  expect(shared.link.state).toBe('no-master');
  expect(shared.link.sentence).toMatch(/has not started within a minute/);
});

it('comes back after a cut, with pauses that grow and a jitter', async () => {
  await connect();
  server.answer = new TypeError('Failed to fetch');
  lastSocket(server).cut();
  expect(shared.link.state).toBe('cut');
  expect(shared.link.sentence).toMatch(/was lost. Reconnecting/);
  const before = server.requests.length;
  await wait(499);
  expect(server.requests.length - before).toBe(0);
  await wait(1 + 1000 + 2000 + 4000);
  expect(server.requests.length - before).toBe(4);
  expect(shared.link.sentence).toMatch(/does not answer.*Retrying/);
  await wait(8000 + 16_000 + 30_000 * 10);
  expect(server.requests.length - before).toBe(16);
  server.answer = { status: 200, body: INFO };
  await wait(30_000);
  lastSocket(server).hello();
  expect(shared.link.state).toBe('up');
  vi.mocked(Math.random).mockReturnValue(0);
  lastSocket(server).cut();
  const again = server.requests.length;
  await wait(15_000); // half of 30 s: the connection was short, so the pauses go on
  expect(server.requests.length).toBe(again + 1);
});

it('begins with short pauses again after a connection that lasted', async () => {
  await connect();
  lastSocket(server).cut();
  await wait(500);
  lastSocket(server).hello();
  await wait(11_000);
  lastSocket(server).cut();
  const before = server.requests.length;
  await wait(500);
  expect(server.requests.length).toBe(before + 1);
});

it('a server that was upgraded while the connection was cut', async () => {
  await connect();
  server.answer = { status: 200, body: { ...INFO, version: '9.0.0' } };
  lastSocket(server).cut();
  await wait(500);
  expect(shared.link.state).toBe('mismatch');
  expect(server.sockets).toHaveLength(1);
});

it('a WebSocket that a proxy does not let through, and a reader that cannot be reached', async () => {
  start();
  await settle();
  lastSocket(server).cut();
  expect(shared.link.state).toBe('cut');
  expect(shared.link.sentence).toMatch(/a proxy may be in its way/);
  await wait(500);
  lastSocket(server).cut(1013, 'There is no memory.');
  expect(shared.link.sentence).toMatch(/cannot be reached now\. .* There is no memory\.$/);
  await wait(1000);
  await wait(75_000); // it is opened, and nobody says hello
  expect(shared.link.sentence).toMatch(/does not answer/);
});

it('a handshake that is never answered is given up', async () => {
  start(null);
  await wait(20_000);
  expect(shared.link.state).toBe('cut');
});

it('retry asks at once, and nothing is asked twice at a time', async () => {
  start(new TypeError('Failed to fetch'));
  await settle();
  server.answer = { status: 200, body: INFO };
  const before = server.requests.length;
  shared.retry();
  shared.retry();
  await settle();
  expect(server.requests.length).toBeLessThanOrEqual(before + 2);
  expect(server.sockets).toHaveLength(1);
  lastSocket(server).hello();
  expect(shared.link.state).toBe('up');
});

it('retry of a page that is connected asks for the master’s state', async () => {
  await connect();
  lastSocket(server).say({ op: 'master', ...RUNNING, state: 'stopped' });
  shared.retry();
  await settle();
  expect(shared.link.state).toBe('up');
  expect(server.sockets).toHaveLength(1);
});

it('a page that is hidden for a minute lets go, and catches up when it is seen', async () => {
  await connect();
  const first = lastSocket(server);
  setVisibility('hidden');
  await wait(59_000);
  setVisibility('visible');
  await wait(5000);
  expect(first.isClosed).toBe(false);
  setVisibility('hidden');
  await wait(60_000);
  expect(first.isClosed).toBe(true);
  const before = server.requests.length;
  await wait(600_000);
  expect(server.requests.length).toBe(before);
  setVisibility('visible');
  await settle();
  lastSocket(server).hello();
  expect(server.sockets).toHaveLength(2);
  expect(shared.link.state).toBe('up');
  expect(states).toEqual(['connecting', 'up']); // the first: this user may write
});

it('updates in the background where that is set', async () => {
  await connect();
  vi.spyOn(shared.settings, 'get').mockReturnValue(true);
  setVisibility('hidden');
  await wait(600_000);
  expect(lastSocket(server).isClosed).toBe(false);
});

it('a network that is back is tried at once', async () => {
  start(new TypeError('Failed to fetch'));
  await wait(60_000);
  server.answer = { status: 200, body: INFO };
  window.dispatchEvent(new Event('online'));
  await settle();
  expect(server.sockets).toHaveLength(1);
});

it('is disposed while it asks', async () => {
  start();
  shared.dispose();
  await settle();
  shared.retry();
  await settle();
  expect(server.sockets).toEqual([]);
  expect(states).toEqual([]);
});
