// @vitest-environment happy-dom
import '../shell/jupyterlab.js';
import { commands, FakeServer, settle } from './fakes.js';
import { InputDialog, showDialog } from '@jupyterlab/apputils';
import { beforeEach, expect, it, vi } from 'vitest';

import { Looks } from '../../../src/lab/page/looks.js';
import { modelActions } from '../../../src/lab/page/modelactions.js';
import { ModelPanel } from '../../../src/lab/page/modelpanel.js';
import { ModelView } from '../../../src/lab/page/modelview.js';
import { OpenNotebooks } from '../../../src/lab/page/notebooks.js';
import { Models } from '../../../src/lab/sidebar/models.js';
import type { IModelState, IVersionLine } from '../../../src/model/state.js';
import { english } from '../../../src/model/trans.js';

let server: FakeServer;

function version(number: number, changes: Partial<IVersionLine> = {}): IVersionLine {
  return {
    number,
    name: '',
    comment: '',
    notes: '',
    labels: [],
    aliases: [],
    metadata: [],
    uuid: `uuid-${number}`,
    experiment_id: 7,
    experiment: 'wide',
    trial_id: 9,
    steps: '200 batches',
    metric: 'accuracy',
    value: '0.9',
    is_best: false,
    hparams: [],
    size_bytes: 1_000_000,
    is_kept: true,
    created_at: 1000,
    load: `load ${number}`,
    ...changes
  };
}

function model(...versions: IVersionLine[]): IModelState {
  return {
    id: 3,
    name: 'digits/é',
    description: 'reads',
    notes: '',
    labels: ['vision'],
    metadata: ['owner: ada'],
    is_archived: false,
    created_at: 1000,
    hparams: [],
    versions,
    no_versions: versions.length === 0 ? 'No version yet: `register`.' : ''
  };
}

async function opened(...versions: IVersionLine[]): Promise<ModelPanel> {
  const panel = new ModelPanel(
    {
      shared: server.asDet,
      looks: new Looks(null, 'test'),
      notebooks: new OpenNotebooks(null),
      commands,
      load: () => Promise.resolve({ ModelView, modelActions } as never)
    },
    3
  );
  document.body.replaceChildren(panel.node);
  await panel.opened;
  server.socket.last.onVersion(model(...versions));
  return panel;
}

function press(panel: ModelPanel, name: string, place = 0): void {
  const buttons = [...panel.node.querySelectorAll('button')];
  buttons.filter(one => one.title === name || one.textContent === name)[place]?.click();
}
const texts = (panel: ModelPanel, selector: string): string[] =>
  [...panel.node.querySelectorAll(selector)].map(one => one.textContent);

beforeEach(() => {
  server = new FakeServer();
  vi.clearAllMocks();
});

it('shows versions, where they come from, and how one with an alias is loaded', async () => {
  const aliased = version(1, { aliases: ['production'], comment: '<b>', is_best: true });
  const panel = await opened(version(2, { is_kept: false }), aliased);
  expect(server.socket.last).toMatchObject({ name: 'model', args: { id: 3 } });
  expect(panel.title.label).toBe('digits/é');
  expect(texts(panel, 'pre')).toEqual(['load 1']);
  const [newest, first] = texts(panel, 'tbody tr');
  expect(newest).toContain('deleted by its trial');
  expect(first).toContain('0.9 ★ best');
  expect(first).toContain('<b>');
  expect(texts(panel, '.det-alias')).toEqual(['production×']);
  press(panel, 'wide');
  expect(commands.execute).toHaveBeenCalledWith('det:open-experiment', { experiment_id: 7 });
  press(panel, 'Copy the lines that load version 2');
  expect(texts(panel, 'pre')).toEqual(['load 2']);
  panel.dispose();
  expect(server.socket.followers[0]?.isDisposed).toBe(true);
});

it('gives and removes aliases, and deletes versions after a question', async () => {
  const panel = await opened(version(2), version(1, { aliases: ['production'] }));
  vi.mocked(InputDialog.getText).mockResolvedValue({
    button: { accept: true },
    value: ' stable '
  } as never);
  press(panel, 'Alias…');
  await settle();
  const path = 'api/models/digits%2F%C3%A9';
  expect(server.post).toHaveBeenLastCalledWith(`${path}/aliases`, { alias: 'stable', number: 2 });
  press(panel, 'Remove the alias production');
  await settle();
  expect(server.post).toHaveBeenLastCalledWith(`${path}/aliases`, {
    alias: 'production',
    number: null
  });
  vi.mocked(showDialog).mockResolvedValueOnce({ button: { accept: false } } as never);
  press(panel, 'Delete…', 1);
  await settle();
  expect(server.post).toHaveBeenCalledTimes(2);
  vi.mocked(showDialog).mockResolvedValueOnce({ button: { accept: true } } as never);
  press(panel, 'Delete…', 1);
  await settle();
  expect(server.post).toHaveBeenLastCalledWith(`${path}/versions/1/delete`, {});
});

it('has no buttons for those who may only look, and says how a version is made', async () => {
  server.link = { ...server.link, mayWrite: false };
  const panel = await opened(version(1, { aliases: ['production'] }));
  const shown = [...panel.node.querySelectorAll<HTMLElement>('.det-view button')].filter(
    one => !one.hidden
  );
  expect(shown.map(({ textContent }) => textContent)).toEqual(['Copy', 'wide', 'Copy']);
  server.socket.last.onVersion(model());
  expect(panel.node.textContent).toContain('No version yet: register.');
  expect(panel.node.querySelector<HTMLElement>('.det-load')?.hidden).toBe(true);
  server.socket.last.onError('there is no such model; it may have been deleted');
  expect(texts(panel, '.det-page-said')).toEqual([
    'there is no such model; it may have been deleted'
  ]);
});

it('is listed in the sidebar unless it is archived', () => {
  const open = vi.fn();
  const list = new Models(english, open);
  const line = {
    id: 3,
    name: 'digits',
    description: 'reads',
    labels: [],
    is_archived: false,
    latest: 'version 2 · accuracy 0.9',
    aliases: ['production: 1']
  };
  expect(list.update([line, { ...line, id: 4, name: 'old', is_archived: true }])).toBe(1);
  expect(list.node.textContent).toBe('digitsversion 2 · accuracy 0.9production: 1');
  list.node.querySelector('button')?.click();
  expect(open).toHaveBeenCalledWith(3);
});
