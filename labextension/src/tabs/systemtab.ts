/** The tab of system metrics: machines, GPUs and processes of ranks, over the trial's time. */
import { h, rebuilder, setText } from '../dom/dom.js';
import { isEnded } from '../model/clock.js';
import { shownTitle, shownTrial, type IShownTrial } from '../model/showntrial.js';
import { SYSTEM, type IViewState } from '../model/state.js';
import { SeriesBoard } from '../series/seriesboard.js';
import { inParts } from '../series/seriespages.js';
import type { IPanel, ITab, ITabContext } from './tab.js';
import { missingOf, systemPictures, type IMissing } from './systempictures.js';
import type { ISeriesPage } from '../model/answers.js';

export function systemTab(context: ITabContext): ITab {
  return {
    id: 'system',
    label: context.requests.trans.__('System'),
    open: host => new SystemPanel(context, host)
  };
}

class SystemPanel implements IPanel {
  constructor(
    private readonly _context: ITabContext,
    host: HTMLElement
  ) {
    const { requests, ask, settings } = _context;
    const { trans, slowHint } = requests;
    this._board = new SeriesBoard({
      ...{ trans, slowHint, settings },
      ask: inParts(question => ask('series', question), SYSTEM),
      picture: (page, origin) => systemPictures(page, origin, trans),
      empty: page => this._emptyText(page),
      onPage: page => this._drawMissing(missingOf(page, trans))
    });
    const line = h('div.det-line', {}, this._trial, this._board.tools);
    host.append(line, this._board.node, this._missing);
  }

  update(state: IViewState): void {
    const shown = shownTrial(state);
    this._shown = shown;
    setText(this._trial, shownTitle(state, this._context.requests.trans));
    if (shown !== null) {
      const followed = { trial_id: shown.id, of: 'system', axis: 'time' } as const;
      this._board.follow(followed, isEnded(shown.status));
    }
  }

  setShown(isShown: boolean): void {
    this._board.setShown(isShown);
  }

  restyle(): void {
    this._board.restyle();
  }

  dispose(): void {
    this._board.dispose();
  }

  private _emptyText(page: ISeriesPage): string {
    const { trans } = this._context.requests;
    const shown = this._shown;
    if (page.series.some(one => one.missing !== '')) {
      return trans.__('Nothing could be measured; the reasons are below.');
    }
    if (shown !== null && isEnded(shown.status)) {
      return trans.__('Nothing was measured while the trial ran.');
    }
    return shown === null || shown.status === 'running'
      ? trans.__('Nothing was measured yet.')
      : trans.__('Nothing was measured yet: the trial is %1.', shown.statusWord.toLowerCase());
  }

  private readonly _board: SeriesBoard;
  private readonly _trial = h('span.det-chart-title');
  private readonly _missing = h('div.det-missing');
  private readonly _drawMissing = rebuilder(this._missing, (missing: IMissing[]) =>
    missing.map(({ what, reason }) =>
      h(
        'p.det-quiet',
        {},
        this._context.requests.trans.__('Not measured: %1: %2', what.join(', '), reason)
      )
    )
  );
  private _shown: IShownTrial | null = null;
}
