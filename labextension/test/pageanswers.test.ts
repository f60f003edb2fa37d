import { expect, it } from 'vitest';

import type { ILogLine, ILogPage, ISeriesAnswer } from '../src/model/answers.js';
import { answerOf, type IPageData, type IQuestion } from '../src/pageanswers.js';
import { state } from './samples.js';

function line(id: number, changes: Partial<ILogLine> = {}): ILogLine {
  const fields = { at: id, trial_id: 1, run: 1, rank: 0, text: `line ${id}`, level: null };
  return { id, is_open: false, agent: '', ...fields, ...changes };
}

const points = { x: [1, 2, 3], low: [1, 2, 3], mid: [4, 5, 6], high: [7, 8, 9] };
const one = { source: 'rank:0', name: 'forward', title: '', unit: 's', missing: '', ...points };

const DATA: IPageData = {
  state: state(),
  chosen: {},
  tabs: { text: 'code' },
  config: { yaml: 'name: digits\n', template: null, notices: [] },
  checkpoints: { checkpoints: [], total: 0, best: '', registered: {}, models: [] },
  logs: [
    line(1),
    line(2, { rank: 1, level: 'warning' }),
    line(3, { trial_id: 2, level: 'error', text: 'Broken' }),
    line(4, { agent: 'b' })
  ],
  series: {
    '1 timings time all': {
      series: [one, { ...one, source: 'rank:1' }],
      began_at: 0,
      ended_at: 9,
      interval_s: 1
    }
  },
  widget: ''
};

function answer(question: Partial<IQuestion>): object {
  return answerOf(DATA, { type: '', request: 'r', ...question });
}

it.each([
  [{}, [1, 2, 3, 4]],
  [{ trial_id: null, rank: null, agent: null, level: null, search: '' }, [1, 2, 3, 4]],
  [{ trial_id: 2 }, [3]],
  [{ rank: 1 }, [2]],
  [{ agent: 'b' }, [4]],
  [{ level: 'warning' }, [2, 3]],
  [{ search: 'broken' }, [3]],
  [{ search: '/^line [24]/' }, [2, 4]],
  [{ search: '/(/' }, []],
  [{ after: 2 }, [3, 4]],
  [{ tail: 2 }, [3, 4]],
  [{ first: 1 }, [1]]
])('lines are chosen by %j', (query, ids) => {
  const page = answer({ type: 'logs', ...query }) as ILogPage;
  expect(page.lines.map(found => found.id)).toEqual(ids);
  expect([page.last_id, page.is_over]).toEqual([4, true]);
});

const query = { of: 'timings', axis: 'time', columns: 600 } as const;
const whole = { names: null, sources: null, since: null, until: null };

it('series are chosen by their sources and their part of the axis', () => {
  const part = { ...whole, ...query, sources: ['rank:1'], since: 2, until: 2 };
  const { page } = answer({ type: 'series', trial_id: 1, query: part }) as ISeriesAnswer;
  expect(page.series).toEqual([
    { ...one, source: 'rank:1', x: [2], low: [2], mid: [5], high: [8] }
  ]);
});

it('a trial without series, and a change, are answered with a sentence', () => {
  const missing = { type: 'series', trial_id: 2, query: { ...whole, ...query } };
  const notLive = 'This page is a file: it shows what was, and cannot change anything.';
  expect(answer(missing)).toMatchObject({ error: 'This file has nothing of this trial here.' });
  expect(answer({ type: 'register' })).toMatchObject({ type: 'register', error: notLive });
  expect(answer({ type: 'command' })).toMatchObject({ type: 'command', error: notLive });
});

it('what is the same for all questions is answered as it is', () => {
  expect(answer({ type: 'config' })).toEqual({
    ...DATA.config,
    ...{ type: 'config', request: 'r', error: '' }
  });
});
