/** A bar for each rank: the time of a batch, divided into parts. */
import { h, rebuilder } from '../dom/dom.js';
import { formatPercent } from '../model/format.js';
import { formatSeconds } from '../model/units.js';
import type { ITrans } from '../model/trans.js';
import { lookOfPart, type IRankTimes } from './batchparts.js';

export class RankBars {
  readonly node = h('div.det-rank-bars');

  constructor(
    private readonly _trans: ITrans,
    private readonly _onChoose: (rank: number) => void
  ) {}

  update(ranks: IRankTimes[], chosen: number): void {
    this._draw({ ranks, chosen });
  }

  private _bar({ rank, parts, total }: IRankTimes, longest: number, chosen: number): HTMLElement {
    const shares = parts.map(({ title, seconds }) => {
      const share = formatPercent(seconds / Math.max(total, 1e-12));
      return `${title} ${formatSeconds(seconds)} (${share})`;
    });
    const name = this._trans.__('rank %1', rank);
    const button = h(
      'button.det-rank-bar',
      {
        type: 'button',
        'aria-pressed': String(rank === chosen),
        'aria-label': `${name}: ${formatSeconds(total)}: ${shares.join(', ')}`
      },
      h('span.det-rank-name', {}, name),
      h(
        'span.det-rank-parts',
        {},
        ...parts.map((part, i) => this._part(part, shares[i] as string, longest))
      ),
      h('span.det-rank-total', {}, formatSeconds(total))
    );
    button.addEventListener('click', () => this._onChoose(rank));
    return button;
  }

  private _part(
    { name, seconds }: IRankTimes['parts'][number],
    title: string,
    longest: number
  ): HTMLElement {
    const { color, isHatched } = lookOfPart(name);
    const part = h('span', { class: `det-patch${isHatched ? ' det-mod-hatched' : ''}`, title });
    part.style.color = color;
    part.style.width = `${((100 * seconds) / Math.max(longest, 1e-12)).toFixed(3)}%`;
    return part;
  }

  private readonly _draw = rebuilder(
    this.node,
    ({ ranks, chosen }: { ranks: IRankTimes[]; chosen: number }) => {
      const longest = Math.max(...ranks.map(one => one.total));
      return ranks.length < 2 ? [] : this._all(ranks, longest, chosen);
    }
  );

  private _all(ranks: IRankTimes[], longest: number, chosen: number): HTMLElement[] {
    const title = this._trans.__('Ranks side by side: a batch of each, on average');
    return [
      h('span.det-chart-title', {}, title),
      ...ranks.map(one => this._bar(one, longest, chosen))
    ];
  }
}
