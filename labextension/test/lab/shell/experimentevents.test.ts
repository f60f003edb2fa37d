import { expect, test } from 'vitest';

import {
  isWanted,
  messageOf,
  messageOfMany,
  Watcher,
  type IExperimentEvent
} from '../../../src/lab/shell/experimentevents.js';
import type { IExperimentRow } from '../../../src/model/state.js';
import { english } from '../../../src/model/trans.js';
import { line } from './fake.js';

/** What a watcher says of each of these, one after the other; the first is what the page opens with. */
function watch(...news: IExperimentRow[][]): string[][] {
  const watcher = new Watcher();
  const rows = new Map<number, IExperimentRow>();
  return news.map(changed => {
    changed.forEach(row => rows.set(row.id, row));
    return watcher
      .take(
        rows,
        changed.map(({ id }) => id)
      )
      .map(({ kind, row }) => `${row.id} ${kind}`);
  });
}

test('what was over when the page opened is not mentioned', () => {
  expect(watch([line(1, { status: 'completed' }), line(2, { status: 'error' })])).toEqual([[]]);
});

test('an end is mentioned once', () => {
  const over = line(1, { status: 'completed', ended_at: 9 });
  expect(watch([line(1)], [over], [over])).toEqual([[], ['1 ended'], []]);
});

test('an experiment that came and failed between two news is mentioned', () => {
  expect(watch([line(1)], [line(2, { status: 'error' })])).toEqual([[], ['2 failed']]);
});

test('an old experiment that is seen late is not mentioned', () => {
  expect(watch([line(5)], [line(2, { status: 'error' })])).toEqual([[], []]);
});

test('with another master, numbers stand for other experiments', () => {
  const other = line(1, { status: 'error', created_at: 99_999 });
  expect(watch([line(1), line(2)], [other])).toEqual([[], []]);
});

test('an experiment that was continued ends again', () => {
  const over = line(1, { status: 'completed', ended_at: 9 });
  const again = line(1, { status: 'error', ended_at: 20 });
  expect(watch([over], [line(1)], [again])).toEqual([[], [], ['1 failed']]);
});

test('a run that a diagnosis waits for is not mentioned', () => {
  const run = line(2, { is_quiet: true, num_trials: 2, best_metric: 0.5 });
  const better = { ...run, best_metric: 0.6 };
  const failed = line(3, { is_quiet: true, status: 'error' });
  const over: IExperimentRow = { ...better, status: 'completed', ended_at: 9 };
  expect(watch([line(1)], [run], [better], [over, failed])).toEqual([[], [], [], []]);
});

test('a run that diverges is mentioned once, and its end only if it says something else', () => {
  const alarm = 'loss is NaN since batch 40';
  const wild = line(1, { alarm, alarm_kind: 'diverged' });
  const over = line(1, { status: 'error', failure: `trial 1: ${alarm}`, ended_at: 9 });
  const other = line(1, { status: 'error', failure: 'ValueError: no', ended_at: 9 });
  const again = line(1, { alarm: 'loss is NaN since batch 80', alarm_kind: 'diverged' });
  expect(watch([line(1)], [wild], [line(1)], [again], [over])).toEqual([
    [], ['1 diverged'], [], [], []
  ]); // prettier-ignore
  expect(watch([line(1)], [wild], [other])).toEqual([[], ['1 diverged'], ['1 failed']]);
  expect(watch([wild], [over])).toEqual([[], ['1 failed']]); // the page opened in between
  expect(watch([line(1)], [wild], [over], [line(1)], [wild])).toEqual([
    [], ['1 diverged'], [], [], ['1 diverged']
  ]); // prettier-ignore
});

test('a trial that hangs is mentioned once, and again if it hangs again', () => {
  const hang = (alarm: string): IExperimentRow => line(1, { alarm, alarm_kind: 'hangs' });
  const [first, second] = [hang('rank 1 since 15:40:12'), hang('rank 1 since 15:50:00')];
  const over = line(1, { status: 'error', failure: 'it hung', ended_at: 9 });
  expect(watch([line(1)], [first], [first], [line(1)], [second], [over])).toEqual([
    [], ['1 hangs'], [], [], ['1 hangs'], ['1 failed']
  ]); // prettier-ignore
});

test('a trial that waits for room is not mentioned, as its disk is, and its divergence later is', () => {
  const room = line(1, { alarm: 'waits for room on /data', alarm_kind: 'waits for room' });
  const wild = line(1, { alarm: 'loss is NaN since batch 40', alarm_kind: 'diverged' });
  expect(watch([line(1)], [room], [wild])).toEqual([[], [], ['1 diverged']]);
});

test('what was canceled is not mentioned', () => {
  expect(watch([line(1)], [line(1, { status: 'canceled' })])).toEqual([[], []]);
});

test('a search has a new best when it is better, in its direction', () => {
  const loss = (best: number | null): IExperimentRow =>
    line(1, { num_trials: 4, smaller_is_better: true, best_metric: best });
  expect(watch([loss(null)], [loss(0.5)], [loss(0.6)], [loss(0.4)])).toEqual([
    [], [], [], ['1 best']
  ]); // prettier-ignore
  expect(watch([line(1, { best_metric: 0.5 })], [line(1, { best_metric: 0.9 })])).toEqual([[], []]);
});

test('the settings say what is wanted', () => {
  const kinds = ['ended', 'failed', 'best'] as const;
  const wanted = (notifyEnded: 'never' | 'failed' | 'always', notifyBest: boolean): string[] =>
    kinds.filter(kind =>
      isWanted({ kind, row: line(1, { ended_at: 9000 }), key: '' }, { notifyEnded, notifyBest })
    );
  expect(wanted('always', true)).toEqual(['ended', 'failed', 'best']);
  expect(wanted('failed', true)).toEqual(['failed', 'best']);
  expect(wanted('never', false)).toEqual([]);
});

test('messages name the experiment and what counts', () => {
  const of = (kind: IExperimentEvent['kind'], fields: Partial<IExperimentRow>): string =>
    messageOf({ kind, row: line(3, fields), key: '' }, english);
  expect(of('ended', { best_metric: 0.98 })).toBe(
    'Experiment 3 (DigitsTrial) has ended: accuracy 0.9800'
  );
  expect(of('ended', {})).toBe('Experiment 3 (DigitsTrial) has ended');
  expect(of('failed', { failure: 'rank 1: out of memory' })).toBe(
    'Experiment 3 failed (DigitsTrial): rank 1: out of memory'
  );
  expect(of('best', { best_metric: 0.98 })).toBe(
    'Search 3 (DigitsTrial) has a new best: accuracy 0.9800'
  );
  expect(of('ended', { name: 'n'.repeat(300) }).length).toBeLessThan(100);
});

test('many are one message', () => {
  const many = (['failed', 'ended', 'ended', 'best'] as const).map(kind => ({
    kind,
    row: line(1),
    key: ''
  }));
  expect(messageOfMany(many, english)).toBe(
    '1 experiment failed (1), 2 experiments have ended, 1 search has a new best'
  );
});
