// @vitest-environment happy-dom
import { FakeSocket, settle } from './fakes.js';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

vi.mock('@jupyterlab/notebook', () => ({}));

import { Feed } from '../../../src/lab/page/feed.js';
import { OpenNotebooks, type INotebooks } from '../../../src/lab/page/notebooks.js';
import { SavedPictures } from '../../../src/lab/page/savedpictures.js';
import { Looks } from '../../../src/lab/page/looks.js';
import { MIME, rendererFactory } from '../../../src/lab/page/mime.js';
import { state } from '../../samples.js';

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

it('has the newest state of an experiment', async () => {
  const socket = new FakeSocket();
  const feed = new Feed(socket as never, 3, 17);
  expect(socket.last.args).toEqual({ experiment_id: 3, chosen: 17 });
  socket.last.onVersion(state({ id: 3, name: 'a' }));
  await feed.ready();
  socket.last.onVersion(state({ id: 3, name: 'b' }));
  expect(feed.state?.name).toBe('b');
});

it('tells when it is over, and follows another trial when one is chosen', async () => {
  const socket = new FakeSocket();
  const feed = new Feed(socket as never, 3, null);
  const told: string[] = [];
  feed.changed.connect(() => told.push(feed.over));
  feed.choose(5);
  expect(socket.last.args).toEqual({ experiment_id: 3, chosen: 5 });
  socket.last.onError('experiment 3 was deleted');
  await feed.ready();
  expect(told.at(-1)).toBe('experiment 3 was deleted');
  feed.dispose();
  feed.dispose();
  expect(feed.isDisposed).toBe(true);
});

it('keeps how views are set across reloads, the newest of them', async () => {
  const saved = new Map<string, unknown>();
  const database = {
    fetch: (key: string) => Promise.resolve(saved.get(key)),
    save: (key: string, value: unknown) => Promise.resolve(void saved.set(key, value))
  };
  const looks = new Looks(database as never, 'views');
  await looks.ready();
  expect(looks.of('page:3')).toEqual({ settings: {}, chosen: null });
  looks.change('page:1', { chosen: 1 });
  for (let i = 2; i < 60; i++) {
    looks.change(`page:${i}`, { settings: { tab: 'logs', zoom: [1, i] } });
  }
  looks.change('page:59', { chosen: 7 });
  await vi.advanceTimersByTimeAsync(1000);
  const again = new Looks(database as never, 'views');
  await again.ready();
  expect(again.of('page:59')).toEqual({ settings: { tab: 'logs', zoom: [1, 59] }, chosen: 7 });
  expect(again.of('page:1').chosen).toBeNull();
});

it('does without what was saved where that cannot be read', async () => {
  const warn = vi.spyOn(console, 'warn').mockReturnValue();
  const fail = (): Promise<never> => Promise.reject(new Error('no state here'));
  const looks = new Looks({ fetch: fail, save: fail } as never, 'views');
  await looks.ready();
  looks.change('a', { chosen: 2 });
  await vi.advanceTimersByTimeAsync(1000);
  expect(looks.of('a').chosen).toBe(2);
  expect(warn).toHaveBeenCalledTimes(2);
  warn.mockRestore();
});

type Data = Record<string, unknown>;

function notebooks(...all: Data[]): INotebooks & { all: Data[]; written: number } {
  const found = {
    all,
    written: 0,
    forEach: (each: (panel: never) => void): void =>
      each({
        content: {
          model: {
            cells: [
              {},
              {
                outputs: {
                  length: all.length,
                  get: (i: number) => ({ data: all[i] as Data, toJSON: () => ({}) }),
                  set: (i: number, output: { data: Data }) => {
                    found.written += 1;
                    all[i] = output.data;
                  }
                }
              }
            ]
          }
        }
      } as never)
  };
  return found;
}

const html = (key: string, card: string): string => `<det-experiment key="${key}">${card}`;

it('puts the last picture where an older one is, and leaves the rest alone', async () => {
  const books = notebooks(
    { 'text/html': html('3@5', 'running'), [MIME]: { status: 'running' } },
    { 'text/html': html('4@5', 'running'), [MIME]: { status: 'running' } },
    { 'text/plain': '3' },
    { 'text/html': html('3@5', 'over'), [MIME]: { status: 'completed' } }
  );
  const socket = new FakeSocket();
  const kept = { 'text/html': html('3@5', 'over'), [MIME]: { status: 'completed' } };
  socket.ask.mockResolvedValue({ kept });
  const pictures = new SavedPictures(socket as never, new OpenNotebooks(books));
  await pictures.finish('3@5', 3, 'completed');
  await pictures.finish('3@5', 3, 'completed');
  expect(socket.ask.mock.calls).toEqual([[3, 'kept', {}]]);
  expect(books.all[0]).toEqual(kept);
  expect(books.written).toBe(1);
});

it('does without the last picture where the server cannot make it', async () => {
  const warn = vi.spyOn(console, 'warn').mockReturnValue();
  const socket = new FakeSocket();
  socket.ask.mockRejectedValue(new Error('no'));
  const books = notebooks({ 'text/html': html('3@5', 'running') });
  const pictures = new SavedPictures(socket as never, new OpenNotebooks(books));
  await pictures.finish('3@5', 3, 'completed');
  await settle();
  expect(books.written).toBe(0);
  warn.mockRestore();
});

it('replaces a cell where the notebook shows the experiment, and nowhere else', () => {
  const book = (key: string): { cells: unknown[]; source: string } => {
    const found = { source: 'def train(): ...\n', cells: [] as unknown[] };
    const sharedModel = {
      getSource: () => found.source,
      setSource: (source: string) => {
        found.source = source;
      }
    };
    const output = { data: { 'text/html': html(key, 'over') } };
    found.cells = [{ sharedModel }, { outputs: { length: 1, get: () => output } }];
    return found;
  };
  const books = [book('3@5'), book('4@5')];
  const tracker: INotebooks = {
    forEach: each => books.forEach(({ cells }) => each({ content: { model: { cells } } }))
  };
  const open = new OpenNotebooks(tracker);
  expect(open.replaceCell('3@5', 'def other(): ...', 'changed')).toBe(false);
  expect(open.replaceCell('7@5', 'def train(): ...', 'changed')).toBe(false);
  expect(open.replaceCell('3@5', 'def train(): ...', 'changed\n')).toBe(true);
  expect(books.map(({ source }) => source)).toEqual(['changed', 'def train(): ...\n']);
});

it('draws what a notebook keeps as a place around the card, which is sanitized', async () => {
  const sanitizer = { sanitize: (text: string) => text.replace(/<script.*<\/script>/, '') };
  const output = rendererFactory.createRenderer({ mimeType: MIME, sanitizer } as never);
  const data: Data = {
    [MIME]: { key: '3@"><img src=x>', id: 3 },
    'text/html': '<p>card</p><script>x</script>'
  };
  await output.renderModel({ data } as never);
  const place = output.node.firstElementChild as HTMLElement;
  expect(place.tagName).toBe('DET-EXPERIMENT');
  expect(place.getAttribute('key')).toBe('3@"><img src=x>');
  expect(output.node.innerHTML).not.toContain('script');
  // A live view is in the place when a newer card comes: it stays.
  const view = document.createElement('article');
  place.replaceChildren(view);
  await output.renderModel({ data: { ...data, 'text/html': '<p>newer</p>' } } as never);
  expect(output.node.firstElementChild).toBe(place);
  expect(place.firstElementChild).toBe(view);
});

it.each([[{}], [{ [MIME]: null }], [{ [MIME]: { key: { a: 1 }, name: ['<b>'] } }]])(
  'draws something of data that make no sense: %j',
  async data => {
    const output = rendererFactory.createRenderer({ mimeType: MIME } as never);
    await output.renderModel({ data } as never);
    expect(output.node.querySelector('det-experiment')?.getAttribute('key')).toBe('');
    expect(output.node.querySelector('b')).toBeNull();
  }
);
