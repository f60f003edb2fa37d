// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { Socket } from '../../../src/lab/connection/socket.js';
import { english } from '../../../src/model/trans.js';
import { type FakeSocket, type IServer, fakeServer, lastSocket } from './fakes.js';

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

const news = (id: number, seq: number, data: unknown = {}): object => ({ op: 'news', id, seq, data }); // prettier-ignore

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

it('opens one WebSocket for all topics, and follows them when it is greeted', () => {
  socket.follow('cluster', {}, () => undefined);
  socket.open();
  socket.open();
  expect(server.sockets).toHaveLength(1);
  expect(lastSocket(server).taken()).toEqual([]);
  lastSocket(server).hello();
  socket.follow('usage', { period_s: 2 }, () => undefined);
  expect(lastSocket(server).taken()).toEqual([
    { op: 'follow', id: 1, topic: 'cluster', args: {} },
    { op: 'follow', id: 2, topic: 'usage', args: { period_s: 2 } }
  ]);
});

it('acknowledges news after they were shown, and shows none twice', () => {
  const fake = connected();
  const done: unknown[] = [];
  socket.follow('cluster', {}, data => {
    done.push(...fake.taken(), data);
  });
  fake.taken();
  fake.say(news(1, 1, 'a'));
  fake.say(news(1, 1, 'again'));
  fake.say(news(1, 3, 'b'));
  fake.say(news(1, 2, 'older'));
  done.push(...fake.taken());
  const ack = (seq: number): object => ({ op: 'ack', id: 1, seq });
  expect(done).toEqual(['a', ack(1), ack(1), 'b', ack(3), ack(2)]);
});

it('a mistake in what shows a topic is logged, and the others go on', () => {
  const logged = vi.spyOn(console, 'error').mockImplementation(() => undefined);
  const fake = connected();
  socket.follow('cluster', {}, () => {
    throw new Error('mistake');
  });
  const seen = vi.fn();
  socket.follow('trials', {}, seen);
  fake.taken();
  fake.say(news(1, 1));
  fake.say(news(2, 1));
  expect(logged).toHaveBeenCalledOnce();
  expect(seen).toHaveBeenCalledOnce();
  expect(fake.taken()).toEqual([
    { op: 'ack', id: 1, seq: 1 },
    { op: 'ack', id: 2, seq: 1 }
  ]);
});

it('leaves a topic once, and news that come after that are nobody’s', () => {
  const fake = connected();
  const seen = vi.fn();
  const followed = socket.follow('cluster', {}, seen);
  fake.taken();
  followed.dispose();
  followed.dispose();
  expect(followed.isDisposed).toBe(true);
  fake.say(news(1, 1));
  followed.change({});
  expect(fake.taken()).toEqual([{ op: 'leave', id: 1 }]);
  expect(seen).not.toHaveBeenCalled();
});

it('a topic that is left while its news are shown is not acknowledged', () => {
  const fake = connected();
  const followed = socket.follow('cluster', {}, () => followed.dispose());
  fake.taken();
  fake.say(news(1, 1));
  expect(fake.taken()).toEqual([{ op: 'leave', id: 1 }]);
});

it('other arguments are another topic: what is on its way for the old ones is not shown', () => {
  const fake = connected();
  const seen = vi.fn();
  const followed = socket.follow('experiment', { experiment_id: 3, chosen: null }, seen);
  fake.say(news(1, 1, 'old'));
  fake.taken();
  followed.change({ experiment_id: 3, chosen: 17 });
  const args = { experiment_id: 3, chosen: 17 };
  expect(fake.taken()).toEqual([
    { op: 'leave', id: 1 },
    { op: 'follow', id: 2, topic: 'experiment', args }
  ]);
  fake.say(news(1, 2, 'late'));
  fake.say(news(2, 1, 'new'));
  expect(seen.mock.calls).toEqual([['old'], ['new']]);
});

it('goes on after a cut with the number that it has seen', () => {
  const fake = connected();
  socket.follow('cluster', {}, () => undefined);
  socket.follow('trials', {}, () => undefined);
  fake.say(news(1, 12));
  fake.cut();
  expect(lost).toEqual([1006]);
  expect(socket.isOpen).toBe(false);
  const again = connected();
  expect(again).not.toBe(fake);
  expect(again.taken()).toEqual([
    { op: 'follow', id: 1, topic: 'cluster', args: {}, since: 12 },
    { op: 'follow', id: 2, topic: 'trials', args: {} }
  ]);
});

it('begins anew with a feeder that was restarted, whose numbers are others', () => {
  const seen = vi.fn();
  const fake = connected();
  socket.follow('cluster', {}, seen);
  fake.say(news(1, 12));
  fake.cut(1012);
  const again = connected('two');
  expect(again.taken()).toEqual([{ op: 'follow', id: 1, topic: 'cluster', args: {} }]);
  again.say(news(1, 1));
  expect(seen).toHaveBeenCalledTimes(2);
});

it('a topic that is over says why, and is not followed again', () => {
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

it('a feeder that knows no ping is left alone', () => {
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
  fake.say(news(1, 7));
  fake.onmessage?.({ data: '<html>' });
  expect(lost).toEqual([1006]);
  expect(connected().taken()).toEqual([{ op: 'follow', id: 1, topic: 'cluster', args: {} }]);
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
