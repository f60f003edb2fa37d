/** The notice that a view is not updated any more: the reason, and code that connects it again. */
import { formatClock } from '../model/format.js';
import type { ITrans } from '../model/trans.js';
import { h, setHidden, setText } from './dom.js';

/** Why a view is not live. */
export interface IWhyLost {
  text: string;
  /** The line to run or type; '' if there is none. */
  line: string;
}

/** Describes why the view of experiment `id`, last updated at `asOf`, is not live. */
export type DescribeLost = (id: number, asOf: number, isOver: boolean) => IWhyLost;

/**
 * Returns the reason for a view whose kernel has ended.
 *
 * @param hasPlaces - Whether the page has places (places.ts), which another kernel can draw. Without
 *   them an output contains the widget, and the experiment has to be shown again.
 */
export function kernelIsGone(trans: ITrans, hasPlaces: boolean): DescribeLost {
  return (id, asOf, isOver) => {
    const text = isOver
      ? trans.__(
          'Not live: the kernel that drew this is gone. To connect the view again, run ',
          formatClock(asOf)
        )
      : trans.__(
          'Not live: the kernel that drew this is gone, and this is as of %1. The experiment does not need that kernel. To follow it again, run ',
          formatClock(asOf)
        );
    const load = '%load_ext det_jupyter';
    return { text, line: hasPlaces ? load : `${load}\n%det_experiment show ${id}` };
  };
}

export class Lost {
  readonly node: HTMLElement;

  constructor() {
    const paragraph = h('p', {}, this._text, this._line);
    this.node = h('div.det-lost', { role: 'status', hidden: true }, paragraph);
  }

  show({ text, line }: IWhyLost): void {
    setText(this._text, text);
    setText(this._line, line);
    setHidden(this._line, line === '');
    setHidden(this.node, false);
  }

  hide(): void {
    setHidden(this.node, true);
  }

  private readonly _text = h('span');
  private readonly _line = h('code');
}
