/** Places the labels of marks so that none covers another; pure. */

const GAP = 4;
const MAX_ROWS = 3;
/** The height of a row of labels. */
export const LABEL_HEIGHT = 13;

export interface IPlacedMark {
  /** Pixels. */
  at: number;
  /** The part of the label that fits; empty if nothing does. */
  label: string;
  /** The end of the label at the line. */
  align: 'left' | 'right';
  labelAt: number;
  /** Counted from the top, beginning with 0. */
  row: number;
}

/** The space for labels, in pixels. */
export interface IMarkRoom {
  from: number;
  to: number;
  place: (x: number) => number;
  widthOf: (label: string) => number;
  /** Device pixels per pixel. */
  density?: number;
}

/** Visible marks: each label on the wider side of its line, in the first free row. */
export function placedMarks(
  marks: readonly { x: number; label: string }[],
  room: IMarkRoom
): IPlacedMark[] {
  const { from, to, place, widthOf, density = 1 } = room;
  const taken: [number, number][][] = Array.from({ length: MAX_ROWS }, () => []);
  return marks.flatMap(mark => {
    const at = place(mark.x);
    if (!(at >= from && at <= to)) {
      return [];
    }
    const align = at > (from + to) / 2 ? 'right' : 'left';
    const labelAt = at + (align === 'left' ? GAP : -GAP) * density;
    const label = fitting(mark.label, align === 'left' ? to - labelAt : labelAt - from, widthOf);
    const width = widthOf(label);
    const [begin, end] = align === 'left' ? [at, labelAt + width] : [labelAt - width, at];
    const row = taken.findIndex(others => others.every(([b, e]) => e < begin || b > end));
    taken[row]?.push([begin, end]);
    return [{ at, label: row < 0 ? '' : label, align, labelAt, row: Math.max(0, row) }];
  });
}

function fitting(label: string, width: number, widthOf: (label: string) => number): string {
  if (widthOf(label) <= width) {
    return label;
  }
  let kept = label.length;
  while (kept > 0 && widthOf(`${label.slice(0, kept)}…`) > width) {
    kept -= 1;
  }
  return kept === 0 ? '' : `${label.slice(0, kept)}…`;
}
