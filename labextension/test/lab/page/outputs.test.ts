// @vitest-environment happy-dom
import { commands, FakeDrawing, FakeServer, settle, sight } from './fakes.js';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { OpenNotebooks } from '../../../src/lab/page/notebooks.js';
import type { SavedPictures } from '../../../src/lab/page/savedpictures.js';
import { Looks } from '../../../src/lab/page/looks.js';
import { Outputs } from '../../../src/lab/page/outputs.js';
import { places, type ISource } from '../../../src/places.js';
import { state } from '../../samples.js';
import { line } from '../shell/fake.js';

let server: FakeServer;
let drawing: FakeDrawing;
let outputs: Outputs;
const finish = vi.fn<SavedPictures['finish']>();

beforeEach(() => {
  vi.useFakeTimers({ now: 1_000_000_000 });
  finish.mockReset();
  server = new FakeServer();
  drawing = new FakeDrawing();
  outputs = new Outputs({
    shared: server.asDet,
    looks: new Looks(null, 'test'),
    commands,
    notebooks: new OpenNotebooks(null),
    pictures: { finish } as unknown as SavedPictures,
    load: drawing.load
  });
});

afterEach(() => {
  document.body.replaceChildren();
  vi.advanceTimersByTime(5000);
  outputs.dispose();
  vi.useRealTimers();
});

/** A place in the page, in sight. */
function place(key: string): HTMLElement {
  places();
  const element = document.createElement('det-experiment');
  element.setAttribute('key', key);
  element.append('card');
  document.body.append(element);
  sight(element);
  return element;
}

/** What a kernel would draw. */
function kernel(key: string): ISource & { used: boolean[]; opened: number } {
  const source = {
    key,
    used: [] as boolean[],
    opened: 0,
    setUsed: (isUsed: boolean) => void source.used.push(isUsed),
    open: () => {
      source.opened += 1;
      const node = document.createElement('section');
      return { node, setLost: () => undefined, dispose: () => node.remove() };
    }
  };
  return source;
}

async function send(shown = state({ id: 3 })): Promise<void> {
  await settle();
  server.socket.last.onVersion(shown);
  await settle();
}

it('draws an experiment of this master into its place, without any kernel', async () => {
  server.experiments.setWhole(line(3, { key: '3@5.0' }));
  const element = place('3@5.0');
  expect(element.textContent).toBe('card');
  await send();
  expect(element.firstElementChild).toBe(drawing.drawn[0]?.node);
  expect(server.socket.last).toMatchObject({ name: 'experiment', args: { experiment_id: 3 } });
});

it('leaves the card of an experiment of another master alone', async () => {
  server.experiments.setWhole(line(3, { key: '3@5.0' }));
  const others = [place('3@6.0'), place('comparison-1'), place('')];
  await settle();
  expect(others.map(one => one.textContent)).toEqual(['card', 'card', 'card']);
  expect(server.socket.followers).toEqual([]);
});

it('draws what is submitted later than its place is there, and nothing else meanwhile', async () => {
  server.experiments.setWhole();
  const key = '9@1000000.0'; // now
  const own = kernel(key);
  places().add(own);
  const element = place(key);
  expect(element.textContent).toBe('card');
  server.experiments.setSome(line(9, { key }));
  await send(state({ id: 9 }));
  expect(element.firstElementChild?.tagName).toBe('ARTICLE');
  expect(own.opened).toBe(0);
  expect(own.used).toEqual([true, false]);
  places().remove(own);
});

it('lets a kernel draw soon when the server does not get to it', async () => {
  server.experiments.setWhole(line(3, { key: '3@5.1' }));
  const own = kernel('3@5.1');
  places().add(own);
  const element = place('3@5.1');
  await settle();
  expect(own.opened).toBe(0);
  vi.advanceTimersByTime(2000);
  expect(element.firstElementChild?.tagName).toBe('SECTION');
  places().remove(own);
});

it('takes a place over from a kernel when it comes up, and then the kernel rests', async () => {
  server.setLink({ state: 'connecting' });
  const own = kernel('3@5.2');
  places().add(own);
  const element = place('3@5.2');
  expect(element.firstElementChild?.tagName).toBe('SECTION');
  server.experiments.setWhole(line(3, { key: '3@5.2' }));
  server.setLink({ state: 'up' });
  await send();
  expect(element.children).toHaveLength(1);
  expect(element.firstElementChild?.tagName).toBe('ARTICLE');
  expect(own.used.at(-1)).toBe(false);
  places().remove(own);
});

it('keeps its view while the server does not answer, and gives it up where it is of no use', async () => {
  server.experiments.setWhole(line(3, { key: '3@5.3' }));
  const own = kernel('3@5.3');
  const element = place('3@5.3');
  await send();
  places().add(own);
  server.setLink({ state: 'cut' });
  expect(element.firstElementChild).toBe(drawing.drawn[0]?.node);
  server.setLink({ state: 'mismatch' });
  expect(element.firstElementChild?.tagName).toBe('SECTION');
  expect(own.used.at(-1)).toBe(true);
  places().remove(own);
});

it('draws nothing where outputs are not to be live', async () => {
  server.settings.values.liveOutputs = false;
  server.experiments.setWhole(line(3, { key: '3@5.4' }));
  const element = place('3@5.4');
  await settle();
  expect(element.textContent).toBe('card');
  await server.settings.set('liveOutputs', true);
  await send();
  expect(drawing.drawn).toHaveLength(1);
});

it('follows an experiment once for all its places, and no longer than there are any', async () => {
  server.experiments.setWhole(line(3, { key: '3@5.5' }));
  const both = [place('3@5.5'), place('3@5.5')];
  await send();
  expect(drawing.drawn).toHaveLength(2);
  expect(server.socket.followers).toHaveLength(1);
  both.forEach(one => one.remove());
  vi.advanceTimersByTime(5000);
  await settle();
  expect(server.socket.followers[0]?.isDisposed).toBe(true);
  place('3@5.5');
  await send();
  expect(drawing.drawn).toHaveLength(3);
});

it('lets go of an experiment whose number another master has now', async () => {
  server.experiments.setWhole(line(3, { key: '3@5.6' }));
  place('3@5.6');
  await send();
  server.experiments.setWhole(line(3, { key: '3@7.7' }));
  expect(server.socket.followers[0]?.isDisposed).toBe(true);
});

it('has the last picture put into notebooks once an experiment is over', async () => {
  server.experiments.setWhole(line(3, { key: '3@5.7' }));
  place('3@5.7');
  await send();
  expect(finish).not.toHaveBeenCalled();
  await send(state({ id: 3, status: 'completed' }));
  await send(state({ id: 3, status: 'completed' }));
  expect(finish.mock.calls).toEqual([['3@5.7', 3, 'completed']]);
});
