/** Groups equal stacks of ranks. Independent of JupyterLab. */
import type { ITrans } from '../../model/trans.js';
import type { IRankStack } from '../../model/answers.js';

export interface IGroup {
  ranks: number[];
  text: string;
  /** Whether `text` is the reason why they did not answer. */
  isSilent: boolean;
}

/** Groups by interest: ranks that did not answer first, then those of the rarest stack. */
export function groupsOf(stacks: readonly IRankStack[]): IGroup[] {
  const groups: IGroup[] = [];
  for (const { rank, stack, error } of stacks) {
    const isSilent = error !== '';
    const text = isSilent ? error : stack;
    const same = groups.find(group => group.text === text && group.isSilent === isSilent);
    if (same === undefined) {
      groups.push({ ranks: [rank], text, isSilent });
    } else {
      same.ranks.push(rank);
    }
  }
  const order = (group: IGroup): number => (group.isSilent ? 0 : group.ranks.length);
  return groups.sort((one, other) => order(one) - order(other) || first(one) - first(other));
}

function first(group: IGroup): number {
  return group.ranks[0] ?? 0;
}

/** `0–3, 7`. */
export function rangesOf(ranks: readonly number[]): string {
  const ranges: [number, number][] = [];
  for (const rank of ranks) {
    const last = ranges.at(-1);
    if (last?.[1] === rank - 1) {
      last[1] = rank;
    } else {
      ranges.push([rank, rank]);
    }
  }
  return ranges.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(', ');
}

/** `Ranks 0–3`, `All 4 ranks`, `Rank 2`. */
export function nameOf(group: IGroup, total: number, trans: ITrans): string {
  const { ranks } = group;
  return ranks.length === total && total > 1
    ? trans.__('All %1 ranks', total)
    : ranks.length === 1
      ? trans.__('Rank %1', rangesOf(ranks))
      : trans.__('Ranks %1', rangesOf(ranks));
}

/** The function of the innermost frame; '' if the text is no stack. */
export function innermost(stack: string): string {
  return [...stack.matchAll(/^ {2}\S.*, line \d+, in (.+)$/gm)].at(-1)?.[1] ?? '';
}

/** A stack without the folders of installed packages; copies contain them. */
export function shortened(stack: string): string {
  return stack
    .replace(/^ {2}/gm, '')
    .replace(/^File ".*?\/(?:site|dist)-packages\//gm, 'File "')
    .trimEnd();
}

/** All stacks as text, for copying. */
export function textOf(stacks: readonly IRankStack[], trans: ITrans): string {
  return groupsOf(stacks)
    .map(group => `${nameOf(group, stacks.length, trans)}:\n${group.text.trimEnd()}\n`)
    .join('\n');
}
