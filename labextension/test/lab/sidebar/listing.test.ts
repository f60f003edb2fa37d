import { describe, expect, it } from 'vitest';

import {
  acceptsOf,
  byUrgency,
  isActive,
  labelsOf,
  Listing,
  orderOf,
  type IQuery
} from '../../../src/lab/sidebar/listing.js';
import type { IExperimentRow } from '../../../src/model/state.js';
import { line, rowsOf } from './samples.js';

const ALL: IQuery = { text: '', status: '', labels: [], sortBy: 'newest', showArchived: false };

function shown(query: Partial<IQuery>, ...lines: ReturnType<typeof line>[]): number[] {
  const wanted = { ...ALL, ...query };
  const listing = new Listing(acceptsOf(wanted), orderOf(wanted.sortBy));
  listing.reset(rowsOf(...lines));
  return listing.lines.map(({ id }) => id);
}

describe('which experiments are listed', () => {
  it('those that are over, archived ones only when asked for', () => {
    const lines = [line(1), line(2, { status: 'running' }), line(3, { is_archived: true })];
    expect(shown({}, ...lines)).toEqual([1]);
    expect(shown({ showArchived: true }, ...lines)).toEqual([3, 1]);
  });

  it('finds every word, whatever its case, in name, label, notebook and entrypoint', () => {
    const lines = [
      line(1, { name: 'ResNet', notebook: 'vision/train.ipynb' }),
      line(2, { labels: ['vision'], entrypoint: 'Net' }),
      line(3)
    ];
    expect(shown({ text: ' VISION net' }, ...lines)).toEqual([2, 1]);
    expect(shown({ text: 'vision resnet' }, ...lines)).toEqual([1]);
    expect(shown({ text: '#3' }, ...lines)).toEqual([3]);
  });

  it('filters by status and by all of the labels', () => {
    const lines = [
      line(1, { status: 'error', labels: ['a', 'b'] }),
      line(2, { labels: ['a'] }),
      line(3, { labels: ['a', 'b'] })
    ];
    expect(shown({ status: 'error' }, ...lines)).toEqual([1]);
    expect(shown({ labels: ['b', 'a'] }, ...lines)).toEqual([3, 1]);
  });

  it('takes characters of patterns as they are', () => {
    expect(shown({ text: '.*' }, line(1), line(2, { name: 'a.*b' }))).toEqual([2]);
  });
});

describe('the order of experiments', () => {
  it('by number or by name, in which numbers count as such', () => {
    const lines = [line(1, { name: 'run 10' }), line(2, { name: 'run 9' }), line(3, { name: 'A' })];
    expect(shown({ sortBy: 'oldest' }, ...lines)).toEqual([1, 2, 3]);
    expect(shown({ sortBy: 'name' }, ...lines)).toEqual([3, 2, 1]);
  });

  it('by metric: the best first, metrics apart, those without a value last', () => {
    const lines = [
      line(1, { best_metric: 0.3 }),
      line(2, { best_metric: 0.1 }),
      line(3),
      line(4, { best_metric: 0.7, metric: 'accuracy', smaller_is_better: false }),
      line(5, { best_metric: 0.9, metric: 'accuracy', smaller_is_better: false })
    ];
    expect(shown({ sortBy: 'metric' }, ...lines)).toEqual([5, 4, 2, 1, 3]);
  });

  it('what runs, then what waits, then what is paused', () => {
    const lines = [
      line(1, { status: 'paused' }),
      line(2, { status: 'queued' }),
      line(3, { status: 'running' }),
      line(4, { status: 'pausing' })
    ];
    const listing = new Listing(isActive, byUrgency);
    listing.reset(rowsOf(...lines));
    expect(listing.lines.map(({ id }) => id)).toEqual([4, 3, 2, 1]);
  });
});

describe('what waits', () => {
  it('stands in the order of the queue', () => {
    const queued = (id: number, changes: Partial<IExperimentRow>): IExperimentRow =>
      line(id, { status: 'queued', ...changes });
    const lines = [
      queued(1, {}),
      queued(2, { queue_place: 3 }),
      queued(3, {}),
      queued(4, { queue_place: 1 }),
      queued(5, { priority: 7 }),
      queued(6, { position: 0.5 })
    ];
    const listing = new Listing(isActive, byUrgency);
    listing.reset(rowsOf(...lines));
    expect(listing.lines.map(({ id }) => id)).toEqual([4, 2, 5, 6, 1, 3]);
    // The queue moves up: whichever lines are news, in whatever order.
    const rows = rowsOf(...lines.slice(0, 3), queued(4, { status: 'running' }), ...lines.slice(4));
    rows.set(1, queued(1, { queue_place: 0 }));
    listing.change([1, 4], rows);
    expect(listing.lines.map(({ id }) => id)).toEqual([4, 1, 2, 5, 6, 3]);
  });
});

describe('changes of a list', () => {
  it('a change that moves nothing only replaces the line', () => {
    const rows = rowsOf(line(1), line(2));
    const listing = new Listing(acceptsOf(ALL), orderOf('newest'));
    listing.reset(rows);
    rows.set(1, line(1, { best_metric: 0.5 }));
    expect(listing.change([1], rows)).toBe(false);
    expect(listing.lines[1]?.best_metric).toBe(0.5);
  });

  it('what begins, ends, goes or is no longer accepted comes and goes', () => {
    const rows = rowsOf(line(1), line(2, { status: 'running' }), line(3));
    const listing = new Listing(acceptsOf(ALL), orderOf('newest'));
    listing.reset(rows);
    rows.set(2, line(2));
    rows.set(1, line(1, { is_archived: true }));
    rows.delete(3);
    expect(listing.change([1, 2, 3, 99], rows)).toBe(true);
    expect(listing.lines.map(({ id }) => id)).toEqual([2]);
    expect(listing.has(3)).toBe(false);
  });

  it('after many changes it is as if it were made anew, in every order', () => {
    let seed = 7;
    const random = (n: number): number => (seed = (seed * 48271) % 2147483647) % n;
    const changed = (id: number): ReturnType<typeof line> =>
      line(id, {
        name: `n${random(5)}`,
        best_metric: random(3) === 0 ? null : random(4),
        metric: random(2) === 0 ? 'loss' : 'error',
        status: random(4) === 0 ? 'running' : 'completed'
      });
    for (const sortBy of ['newest', 'oldest', 'name', 'metric'] as const) {
      const rows = rowsOf(...Array.from({ length: 60 }, (_, i) => changed(i)));
      const listing = new Listing(acceptsOf(ALL), orderOf(sortBy));
      listing.reset(rows);
      for (let round = 0; round < 60; round += 1) {
        const ids = [random(70), random(70), random(70)];
        ids.forEach(id => (random(5) === 0 ? rows.delete(id) : rows.set(id, changed(id))));
        listing.change(ids, rows);
        const anew = new Listing(acceptsOf(ALL), orderOf(sortBy));
        anew.reset(rows);
        expect(listing.lines).toEqual(anew.lines);
      }
    }
  });

  it('ten thousand lines are filtered and sorted in an instant', () => {
    const rows = rowsOf(
      ...Array.from({ length: 10_000 }, (_, i) => line(i, { best_metric: i % 977 }))
    );
    const listing = new Listing(acceptsOf(ALL), orderOf('newest'));
    listing.reset(rows);
    listing.ask(acceptsOf({ ...ALL, text: 'warm' }), orderOf('name'), rows);
    const began = performance.now();
    listing.ask(acceptsOf({ ...ALL, text: 'run 7' }), orderOf('metric'), rows);
    expect(performance.now() - began).toBeLessThan(200); // 4 ms where nothing else runs
    expect(listing.lines.length).toBeGreaterThan(1000);
  });
});

it('labels are offered by how often they are used', () => {
  const lines = [line(1, { labels: ['b', 'a'] }), line(2, { labels: ['b'] })];
  expect(labelsOf(lines)).toEqual(['b', 'a']);
});
