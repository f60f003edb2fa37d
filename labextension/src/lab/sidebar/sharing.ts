/** Divides the height of the sidebar among open sections; independent of the DOM. */

/**
 * Each section gets what it needs, or an equal share of what is left; the rest goes to one of them.
 *
 * @param needs - In pixels; 0 for a section that is closed or shows only its header.
 * @param rest - The index of the section that gets the rest.
 */
export function shareByNeed(needs: readonly number[], space: number, rest: number): number[] {
  const sizes = needs.map(() => 0);
  const places = placesOf(needs).sort((a, b) => (needs[a] as number) - (needs[b] as number));
  let left = space;
  places.forEach((place, i) => {
    sizes[place] = Math.min(needs[place] as number, Math.max(0, left) / (places.length - i));
    left -= sizes[place];
  });
  const taker = sizes[rest] === 0 ? placesOf(needs).at(-1) : rest;
  if (taker !== undefined && left > 0) {
    sizes[taker] = (sizes[taker] as number) + left;
  }
  return sizes;
}

/** By the shares that the user set; a section without one gets the mean of the others. */
export function shareByChoice(
  needs: readonly number[],
  space: number,
  chosen: readonly number[]
): number[] {
  const open = placesOf(needs);
  const chosenOf = (place: number): number => chosen[place] ?? 0;
  const known = open.map(chosenOf).filter(one => one > 0);
  const mean = known.length === 0 ? 1 : sum(known) / known.length;
  const weights = needs.map((need, place) =>
    need === 0 ? 0 : chosenOf(place) > 0 ? chosenOf(place) : mean
  );
  return weights.map(weight => (weight === 0 ? 0 : (space * weight) / sum(weights)));
}

function placesOf(needs: readonly number[]): number[] {
  return needs.flatMap((need, place) => (need > 0 ? place : []));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
