// @vitest-environment happy-dom
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { ServerConnection } from '@jupyterlab/services';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import type { IChartView } from '../../../src/charts/chart.js';
import { Socket } from '../../../src/lab/connection/socket.js';
import { answerAt, type IRecording, trackOf } from '../../../src/lab/recorded/recording.js';
import { Player, RecordedSocket, respond } from '../../../src/lab/recorded/server.js';
import type { ICheckpointsAnswer, ILogPage, ISeriesAnswer } from '../../../src/model/answers.js';
import type { IExperimentList, IViewState } from '../../../src/model/state.js';
import { english } from '../../../src/model/trans.js';
import { ExperimentView } from '../../../src/view.js';

const file = readFileSync('../docs/site/try/recording.json.gz');
const RECORDING = JSON.parse(gunzipSync(file).toString()) as IRecording;
const { length_s: LENGTH, opened: SEARCH } = RECORDING;
const ignored = (): void => undefined;
const NAMES = ['several computers', 'hang', 'straggler', 'search'];

let socket: Socket;
let player: Player;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  player = new Player(RECORDING);
  const settings = ServerConnection.makeSettings({
    WebSocket: function () {
      return new RecordedSocket(player);
    } as unknown as typeof WebSocket
  });
  socket = new Socket(settings, english);
  socket.open();
});

afterEach(() => {
  socket.dispose();
  vi.useRealTimers();
});

function stateAt(time: number, experiment_id: number, chosen: number | null = null): IViewState {
  const track = trackOf(RECORDING, 'experiment', { experiment_id, chosen });
  return track?.at(time)?.data as IViewState;
}

it('is followed by the socket of the extension, twice as fast, until its end', async () => {
  const lists: IExperimentList[] = [];
  socket.follow('experiments', {}, list => lists.push(list));
  await vi.advanceTimersByTimeAsync(1000);
  expect(Object.values(lists[0]?.rows ?? {}).map(row => row.name)).toEqual(NAMES);
  const first = player.now();
  await vi.advanceTimersByTimeAsync(5000);
  expect(player.now() - first).toBeCloseTo(10_000, -2);
  await vi.advanceTimersByTimeAsync(1000 * LENGTH);
  expect(player.now()).toBe(1000 * (RECORDING.began_at + LENGTH));
  const { rows } = lists.at(-1) as IExperimentList;
  expect(lists.length).toBeGreaterThan(20);
  expect(rows[SEARCH]?.status).toBe('completed');
});

it('has no more of what was not recorded', async () => {
  const said: string[] = [];
  socket.follow('comparison', { experiment_ids: [1, 2] }, ignored, text => said.push(text));
  await vi.advanceTimersByTimeAsync(1000);
  expect(said).toEqual(['This was not recorded.']);
});

it.each([1, 2, 3, 4])('experiment %i is drawn by the view at any time', id => {
  for (const time of [0, LENGTH / 2, LENGTH]) {
    const state = stateAt(time, id);
    const makeChart = (): IChartView => ({
      ...{ node: document.createElement('figure'), update: ignored },
      ...{ restyle: ignored, dispose: ignored }
    });
    const view = new ExperimentView({
      ...{ onCommand: () => Promise.resolve(), slowHint: '', rankTools: [], makeChart }
    });
    view.update(state);
    expect(view.node.textContent).toContain(state.name);
    view.dispose();
  }
});

it('shows what each experiment is there for', () => {
  const hang = stateAt(60, 2);
  expect(hang.hangs[0]?.sentence).toContain('rank 1 has been in ');
  expect(stateAt(LENGTH, 2).hangs).toEqual([]);
  expect(stateAt(LENGTH, 3).trials[0]?.verdict?.kind).toBe('straggler');
  const places = stateAt(LENGTH, 1).trials[0]?.verdict?.network;
  expect(places).toContain('node-');
  expect(stateAt(LENGTH, SEARCH).search?.counts.done).toBe(12);
});

it('has the details of a chosen trial as they were at that time', () => {
  const last = stateAt(LENGTH, SEARCH).search?.rows.at(-1)?.id ?? 0;
  expect(stateAt(0, SEARCH, last).search?.chosen).toBeNull();
  expect(stateAt(LENGTH, SEARCH, last).search?.chosen?.trial.id).toBe(last);
});

it('answers with nothing that came later', () => {
  const ask = (type: string, time: number, fields = {}): object =>
    answerAt(RECORDING, 1, { type, ...fields }, time);
  const [early, late] = [20, LENGTH].map(time => (ask('logs', time) as ILogPage).lines.length);
  expect(early).toBeGreaterThan(0);
  expect(late).toBeGreaterThan(early ?? 0);
  const of = (time: number): number =>
    (ask('checkpoints', time) as ICheckpointsAnswer).checkpoints.length;
  expect(of(LENGTH)).toBeGreaterThanOrEqual(of(0));
  const trained = stateAt(20, 1).trials[0]?.steps_completed ?? 0;
  const query = { of: 'timings', axis: 'batches', columns: 400, since: null, until: null };
  const { page } = ask('series', 20, { trial_id: 1, query }) as ISeriesAnswer;
  const newest = Math.max(...page.series.flatMap(one => one.x));
  expect(newest).toBeLessThanOrEqual(trained);
  expect(newest).toBeGreaterThan(trained / 2);
});

it('says that orders are refused', async () => {
  const info = (await respond('GET', 'info').json()) as object;
  expect(info).toMatchObject({ may_read: true, may_write: false });
  const refused = respond('POST', 'api/experiments/1/kill');
  expect(refused.status).toBe(409);
  const said = (await refused.json()) as { problems: { text: string }[] };
  expect(said.problems[0]?.text).toContain('This is a recording');
  await vi.advanceTimersByTimeAsync(1000);
  await expect(socket.ask(1, 'stacks', { trial_id: 1, rank: 0 })).rejects.toThrow('a recording');
});
