// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { Socket } from '../../../src/lab/connection/socket.js';
import { english } from '../../../src/model/trans.js';
import { type FakeSocket, type IServer, RUNNING, fakeServer, lastSocket } from './fakes.js';

let server: IServer;
let socket: Socket;
let lost: number[];

/** Connects; returns the fake. */
function connected(instance = 'one'): FakeSocket {
  socket.open();
  const fake = lastSocket(server);
  fake.hello({ instance });
  return fake;
}

const whole = (id: number, version: number, data: unknown = {}): object => ({
  ...{ op: 'document', id, version, data }
});
const patch = (since: number, version: number, data: object[]): object => ({
  ...{ op: 'patch', id: 1, since, version, data }
});

beforeEach(() => {
  vi.useFakeTimers();
  server = fakeServer();
  socket = new Socket(server.settings, english);
  lost = [];
  socket.lost.connect((_, { code }) => lost.push(code));
});

afterEach(() => {
  socket.dispose();
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

it('is opened below the base URL, with the token only where the server asks for that', () => {
  socket.open();
  expect(lastSocket(server).url).toBe('ws://host/user/me/det-jupyter/socket');
  const other = fakeServer({ appendToken: true, token: 'a&b' });
  const second = new Socket(other.settings, english);
  second.open();
  expect(lastSocket(other).url).toBe('ws://host/user/me/det-jupyter/socket?token=a%26b');
  second.dispose();
});

it('opens one WebSocket for all documents, and follows them when it is greeted', () => {
  socket.follow('cluster', {}, () => undefined);
  socket.open();
  socket.open();
  expect(server.sockets).toHaveLength(1);
  expect(lastSocket(server).taken()).toEqual([]);
  lastSocket(server).hello();
  socket.follow('usage', { period_s: 2 }, () => undefined);
  expect(lastSocket(server).taken()).toEqual([
    { op: 'follow', id: 1, document: 'cluster', args: {} },
    { op: 'follow', id: 2, document: 'usage', args: { period_s: 2 } }
  ]);
});

it('acknowledges versions after they were shown, and shows none twice', () => {
  const fake = connected();
  const done: unknown[] = [];
  socket.follow('cluster', {}, data => {
    done.push(...fake.taken(), data);
  });
  fake.taken();
  fake.say(whole(1, 1, 'a'));
  fake.say(whole(1, 1, 'again'));
  fake.say(whole(1, 3, 'b'));
  fake.say(whole(1, 2, 'older'));
  done.push(...fake.taken());
  const ack = (version: number): object => ({ op: 'ack', id: 1, version });
  expect(done).toEqual(['a', ack(1), ack(1), 'b', ack(3), ack(2)]);
});

it('makes a version of the one before by a patch, and keeps the parts that it does not touch', () => {
  const fake = connected();
  const seen: { rows: Record<string, object> }[] = [];
  socket.follow('experiments', {}, list => seen.push(list));
  fake.say(whole(1, 4, { rows: { 1: { best: 0.5 }, 2: { best: 0.4 } } }));
  fake.say(patch(4, 9, [{ op: 'replace', path: '/rows/2/best', value: 0.3 }]));
  expect(seen[1]).toEqual({ rows: { 1: { best: 0.5 }, 2: { best: 0.3 } } });
  expect(seen[1]?.rows[1]).toBe(seen[0]?.rows[1]);
  expect(seen[0]).toEqual({ rows: { 1: { best: 0.5 }, 2: { best: 0.4 } } });
});

it.each([
  ['of a version that it has not', patch(5, 6, [])],
  ['that does not fit', patch(4, 5, [{ op: 'replace', path: '/none/at/all', value: 1 }])]
])('asks for the whole after a patch %s', (_, frame) => {
  vi.spyOn(console, 'warn').mockImplementation(() => undefined);
  const fake = connected();
  const seen = vi.fn();
  socket.follow('cluster', {}, seen);
  fake.say(whole(1, 4, {}));
  fake.taken();
  fake.say(frame);
  expect(fake.taken()).toEqual([
    { op: 'leave', id: 1 },
    { op: 'follow', id: 1, document: 'cluster', args: {} }
  ]);
  fake.say(whole(1, 7, { summary: 'whole' }));
  expect(seen.mock.calls).toEqual([[{}], [{ summary: 'whole' }]]);
});

it('a mistake in what shows a document is logged, and the others go on', () => {
  const logged = vi.spyOn(console, 'error').mockImplementation(() => undefined);
  const fake = connected();
  socket.follow('cluster', {}, () => {
    throw new Error('mistake');
  });
  const seen = vi.fn();
  socket.follow('trials', {}, seen);
  fake.taken();
  fake.say(whole(1, 1));
  fake.say(whole(2, 1));
  expect(logged).toHaveBeenCalledOnce();
  expect(seen).toHaveBeenCalledOnce();
  expect(fake.taken()).toEqual([
    { op: 'ack', id: 1, version: 1 },
    { op: 'ack', id: 2, version: 1 }
  ]);
});

it('leaves a document once, and ignores what comes after that', () => {
  const fake = connected();
  const seen = vi.fn();
  const followed = socket.follow('cluster', {}, seen);
  fake.taken();
  followed.dispose();
  followed.dispose();
  expect(followed.isDisposed).toBe(true);
  fake.say(whole(1, 1));
  followed.change({});
  expect(fake.taken()).toEqual([{ op: 'leave', id: 1 }]);
  expect(seen).not.toHaveBeenCalled();
});

it('a document that is left while it is shown is not acknowledged', () => {
  const fake = connected();
  const followed = socket.follow('cluster', {}, () => followed.dispose());
  fake.taken();
  fake.say(whole(1, 1));
  expect(fake.taken()).toEqual([{ op: 'leave', id: 1 }]);
});

it('other arguments are another document: what is on its way for the old ones is not shown', () => {
  const fake = connected();
  const seen = vi.fn();
  const followed = socket.follow('experiment', { experiment_id: 3, chosen: null }, seen);
  fake.say(whole(1, 1, 'old'));
  fake.taken();
  followed.change({ experiment_id: 3, chosen: 17 });
  const args = { experiment_id: 3, chosen: 17 };
  expect(fake.taken()).toEqual([
    { op: 'leave', id: 1 },
    { op: 'follow', id: 2, document: 'experiment', args }
  ]);
  fake.say(whole(1, 2, 'late'));
  fake.say(whole(2, 1, 'new'));
  expect(seen.mock.calls).toEqual([['old'], ['new']]);
});

it('goes on after a cut with the version that it has', () => {
  const fake = connected();
  socket.follow('cluster', {}, () => undefined);
  socket.follow('trials', {}, () => undefined);
  fake.say(whole(1, 12));
  fake.cut();
  expect(lost).toEqual([1006]);
  expect(socket.isOpen).toBe(false);
  const again = connected();
  expect(again).not.toBe(fake);
  expect(again.taken()).toEqual([
    { op: 'follow', id: 1, document: 'cluster', args: {}, version: 12 },
    { op: 'follow', id: 2, document: 'trials', args: {} }
  ]);
});

it('begins anew with a reader that was restarted, whose versions are others', () => {
  const seen = vi.fn();
  const fake = connected();
  socket.follow('cluster', {}, seen);
  fake.say(whole(1, 12));
  fake.cut(1012);
  const again = connected('two');
  expect(again.taken()).toEqual([{ op: 'follow', id: 1, document: 'cluster', args: {} }]);
  again.say(whole(1, 1));
  expect(seen).toHaveBeenCalledTimes(2);
});

it('is greeted again in the same socket when there is a reader, and follows everything then', () => {
  socket.open();
  const fake = lastSocket(server);
  fake.hello({ instance: '', master: { ...RUNNING, state: 'stopped' } });
  const greeted = vi.fn<(instance: string) => void>();
  socket.greeted.connect((_, hello) => greeted(hello.instance));
  const seen = vi.fn();
  socket.follow('cluster', {}, seen);
  fake.taken();
  fake.say({ op: 'pong' });
  vi.advanceTimersByTime(14_000);
  fake.hello({ instance: 'one' });
  expect(greeted.mock.calls).toEqual([['one']]);
  expect(fake.taken()).toEqual([{ op: 'follow', id: 1, document: 'cluster', args: {} }]);
  fake.say(whole(1, 12));
  expect(seen).toHaveBeenCalledOnce();
  vi.advanceTimersByTime(14_000); // the first timer has ended with the second greeting
  expect(fake.sent.filter(({ op }) => op === 'ping')).toEqual([]);
  fake.say({ op: 'pong' });
  vi.advanceTimersByTime(1000);
  expect(fake.sent.filter(({ op }) => op === 'ping')).toHaveLength(1);
  vi.advanceTimersByTime(15_000);
  expect(lost).toEqual([1006]);
});

it('after a time without a reader it goes on with the version that the same reader knows', () => {
  const fake = connected();
  socket.follow('cluster', {}, () => undefined);
  fake.say(whole(1, 12));
  fake.cut();
  const again = connected('');
  again.taken();
  again.hello({ instance: 'one' });
  expect(again.taken()).toEqual([
    { op: 'follow', id: 1, document: 'cluster', args: {}, version: 12 }
  ]);
});

it('a document that is over says why, and is not followed again', () => {
  const fake = connected();
  const over = vi.fn();
  socket.follow('experiment', { experiment_id: 3, chosen: null }, () => undefined, over);
  fake.say({ op: 'error', id: 1, error: 'Experiment 3 was deleted.' });
  fake.say({ op: 'error', id: 1, error: 'twice' });
  expect(over.mock.calls).toEqual([['Experiment 3 was deleted.']]);
  fake.cut();
  expect(connected().taken()).toEqual([]);
});

it('answers find their questions in any order', async () => {
  const fake = connected();
  const one = socket.ask(3, 'series', { names: ['loss'] });
  const two = socket.ask(3, 'logs', {});
  const refused = socket.ask(3, 'change', {});
  expect(fake.taken()[0]).toEqual({
    op: 'ask',
    id: 1,
    experiment_id: 3,
    question: { type: 'series', names: ['loss'] }
  });
  fake.say({ op: 'answer', id: 3, error: 'Trial 4 is over.', data: {} });
  fake.say({ op: 'answer', id: 2, error: '', data: 'b' });
  fake.say({ op: 'answer', id: 1, error: '', data: 'a' });
  fake.say({ op: 'answer', id: 1, error: '', data: 'twice' });
  expect(await one).toBe('a');
  expect(await two).toBe('b');
  await expect(refused).rejects.toThrow('Trial 4 is over.');
});

it('questions wait for the first connection, and are rejected with a sentence by a cut', async () => {
  const early = socket.ask(3, 'logs', {});
  const fake = connected();
  expect(fake.taken()).toHaveLength(1);
  fake.cut();
  await expect(early).rejects.toThrow('cut before the answer came');
  socket.giveUp();
  await expect(socket.ask(3, 'logs', {})).rejects.toThrow('No connection');
});

it('a question that is never answered is rejected after a minute', async () => {
  connected();
  const asked = expect(socket.ask(3, 'logs', {})).rejects.toThrow('within a minute');
  vi.advanceTimersByTime(60_000);
  await asked;
});

it('a line on which nothing comes any more is taken for cut', () => {
  const fake = connected();
  fake.say({ op: 'pong' });
  vi.advanceTimersByTime(15_000); // the first ping was answered
  expect(lost).toEqual([]);
  vi.advanceTimersByTime(15_000);
  expect(lost).toEqual([1006]);
  expect(fake.isClosed).toBe(true);
});

it('a reader that knows no ping is left alone', () => {
  connected();
  vi.advanceTimersByTime(300_000);
  expect(lost).toEqual([]);
});

it('a server that opens the socket and never greets is given up', () => {
  socket.open();
  vi.advanceTimersByTime(75_000);
  expect(lost).toEqual([0]);
});

it('what cannot be read cuts the connection, and nothing is resumed', () => {
  vi.spyOn(console, 'warn').mockImplementation(() => undefined);
  const fake = connected();
  socket.follow('cluster', {}, () => undefined);
  fake.say(whole(1, 7));
  fake.onmessage?.({ data: '<html>' });
  expect(lost).toEqual([1006]);
  expect(connected().taken()).toEqual([{ op: 'follow', id: 1, document: 'cluster', args: {} }]);
});

it('is disposed twice, and does nothing after that', async () => {
  const fake = connected();
  const asked = expect(socket.ask(3, 'logs', {})).rejects.toThrow();
  const followed = socket.follow('cluster', {}, () => undefined);
  socket.dispose();
  socket.dispose();
  await asked;
  expect(fake.isClosed).toBe(true);
  followed.dispose();
  socket.follow('cluster', {}, () => undefined).dispose();
  await expect(socket.ask(3, 'logs', {})).rejects.toThrow();
  socket.open();
  expect(server.sockets).toHaveLength(1);
  expect(lost).toEqual([]);
});
