import { describe, expect, it } from 'vitest';

import { shareByChoice, shareByNeed } from '../../../src/lab/sidebar/sharing.js';

describe('sections that share the height by need', () => {
  const ENDED = 2;

  it.each([
    [
      'the list of those that ended gets what the others leave',
      [110, 92, 23_000, 0],
      [110, 92, 498, 0]
    ],
    ['one without anything has no height', [110, 0, 23_000, 0], [110, 0, 590, 0]],
    ['those that lack room share what is left', [110, 900, 23_000, 0], [110, 295, 295, 0]],
    [
      'nobody gets less than another that needs no more',
      [800, 900, 900, 800],
      [175, 175, 175, 175]
    ],
    [
      'what is left goes to the last one where that list is closed',
      [110, 92, 0, 50],
      [110, 92, 0, 498]
    ],
    ['and where all are closed, to none', [0, 0, 0, 0], [0, 0, 0, 0]],
    ['what fits is seen whole, and the rest is given away', [100, 100, 100, 0], [100, 100, 500, 0]]
  ])('%s', (_, needs, sizes) => {
    expect(shareByNeed(needs, 700, ENDED)).toEqual(sizes);
  });
});

describe('sections whose borders the user has moved', () => {
  it('keep their proportions, in another height too', () => {
    expect(shareByChoice([110, 92, 23_000, 0], 600, [0.5, 0.25, 0.25, 0])).toEqual([
      300, 150, 150, 0
    ]);
    expect(shareByChoice([110, 92, 23_000, 0], 400, [0.5, 0.25, 0.25, 0])).toEqual([
      200, 100, 100, 0
    ]);
  });

  it('leave their height to the others while they have nothing', () => {
    expect(shareByChoice([110, 0, 23_000, 0], 600, [0.5, 0.25, 0.25, 0])).toEqual([400, 0, 200, 0]);
  });

  it('make room for one that was closed then', () => {
    const sizes = shareByChoice([1, 1, 1, 1], 800, [0.25, 0.25, 0.5, 0]);
    expect(sizes.map(Math.round)).toEqual([150, 150, 300, 200]);
  });
});
