/** The verdict of a trial: a sentence, a bar of shares, and folded evidence and advice. */
import { h, rebuilder, setAttribute, setHidden, setText } from '../dom/dom.js';
import { icon } from '../dom/icons.js';
import { formatPercent } from '../model/format.js';
import type { ICauseLine, ITimeShare, IVerdictState, Tone, VerdictKind } from '../model/state.js';
import type { ITrans } from '../model/trans.js';

const MIN_NAMED = 0.08; // parts with a smaller share of the bar have no label

export class VerdictBanner {
  readonly node: HTMLElement;

  constructor(private readonly _trans: ITrans) {
    this._details.append(h('summary', {}, _trans.__('Why, and what to try')), this._causes);
    this.node = h(
      'section.det-verdict',
      { 'aria-label': _trans.__('Where the time goes'), hidden: true },
      h('p.det-verdict-line', { 'aria-live': 'polite' }, this._kind, this._sentence),
      this._bar,
      this._network,
      this._details
    );
  }

  /** Show a verdict; `null` hides the banner. */
  update(verdict: IVerdictState | null): void {
    setHidden(this.node, verdict === null);
    if (verdict === null) {
      return;
    }
    setAttribute(this.node, 'data-tone', verdict.tone);
    this._drawKind({ kind: verdict.kind, tone: verdict.tone, word: verdict.word });
    setText(this._sentence, verdict.sentence);
    this._drawBar(verdict.shares);
    setHidden(this._network, verdict.network === '');
    setText(this._network, this._trans.__('Network: %1.', verdict.network));
    setHidden(this._details, verdict.causes.length === 0);
    this._drawCauses(verdict.causes);
  }

  private _segments(shares: ITimeShare[]): HTMLElement[] {
    setHidden(this._bar, shares.length === 0);
    const words = shares.map(({ word, share }) => `${word} ${formatPercent(share)}`);
    setAttribute(this._bar, 'aria-label', words.join(', '));
    return shares.map(({ kind, word, share }, i) => {
      const text = share >= MIN_NAMED ? word : '';
      const segment = h(
        'span.det-verdict-share',
        { 'data-kind': kind, title: words[i] as string },
        h('span', {}, text)
      );
      // In percent, as flex factors that sum to less than 1 do not fill the bar.
      segment.style.flexGrow = String(100 * share);
      return segment;
    });
  }

  private _causeNode(cause: ICauseLine): HTMLElement {
    const trans = this._trans;
    const rank = cause.rank === null ? '' : `, ${trans.__('rank %1', cause.rank)}`;
    const head = `${cause.word}${rank}: ${formatPercent(cause.share)}`;
    const list = (title: string, lines: string[]): HTMLElement | null =>
      lines.length === 0
        ? null
        : h('div', {}, h('b', {}, title), h('ul', {}, ...lines.map(line => h('li', {}, line))));
    return h(
      'div.det-cause',
      {},
      h('p', {}, h('b', {}, head)),
      list(trans.__('What says so'), cause.evidence),
      list(trans.__('What to try'), cause.advice)
    );
  }

  private readonly _kind = h('span.det-verdict-kind');
  private readonly _drawKind = rebuilder(
    this._kind,
    ({ kind, tone, word }: Pick<IVerdictState, 'kind' | 'tone' | 'word'>) => [
      icon(shapeOf(kind, tone)),
      word
    ]
  );
  private readonly _sentence = h('span');
  private readonly _bar = h('div.det-verdict-bar', { role: 'img' });
  private readonly _drawBar = rebuilder(this._bar, (shares: ITimeShare[]) =>
    this._segments(shares)
  );
  private readonly _network = h('p.det-verdict-network');
  private readonly _details = h('details.det-causes');
  private readonly _causes = h('div');
  private readonly _drawCauses = rebuilder(this._causes, (causes: ICauseLine[]) =>
    causes.map(cause => this._causeNode(cause))
  );
}

/** The icon of a verdict: a warning only where time can be gained. */
function shapeOf(kind: VerdictKind, tone: Tone): 'completed' | 'queued' | 'info' | 'occupied' {
  switch (tone) {
    case 'good':
      return 'completed';
    case 'text':
      return kind === 'unknown' ? 'queued' : 'info';
    default:
      return 'occupied';
  }
}
