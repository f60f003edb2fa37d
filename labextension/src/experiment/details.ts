/** The bottom of the view: checkpoints, and names captured from the notebook. */
import { dataTable, h, rebuilder, setHidden } from '../dom/dom.js';
import { formatNumber, formatSize } from '../model/format.js';
import type { ICaptureRow, ICheckpoints, IViewState } from '../model/state.js';
import type { ITrans } from '../model/trans.js';
import type { CallbackButton } from './callback.js';

interface ICapturedData {
  captured: ICaptureRow[];
  total: number;
}

export class Details {
  readonly node: HTMLElement;

  /** @param _callback - Adds what the first notice says; absent where nothing can be asked. */
  constructor(
    private readonly _trans: ITrans,
    private readonly _callback?: CallbackButton
  ) {
    const added = _callback === undefined ? [] : [_callback.node];
    this.node = h('footer.det-foot', {}, this._saved, this._notices, ...added, this._captured);
  }

  update(state: IViewState): void {
    this._drawSaved(state.checkpoints);
    const { captured, num_captured: total, notices } = state;
    this._drawNotices(notices);
    if (this._callback !== undefined) {
      setHidden(this._callback.node, !state.lacks_callback);
    }
    this._captured.hidden = total === 0;
    this._drawCaptured({ captured, total });
  }

  private _savedParts(saved: ICheckpoints): HTMLElement[] {
    const trans = this._trans;
    const parts: HTMLElement[] = [];
    if (saved.best_metric !== null) {
      parts.push(
        h(
          'span',
          {},
          trans.__('best %1', saved.metric),
          ' ',
          h('b', {}, formatNumber(saved.best_metric)),
          saved.best_step === null
            ? null
            : ` (${trans.__('checkpoint at step %1', saved.best_step)})`
        )
      );
    }
    if (saved.count > 0) {
      const count = trans._n('%1 checkpoint', '%1 checkpoints', saved.count);
      const latest = trans.__('latest at step %1', saved.latest_step ?? 0);
      parts.push(h('span', {}, `${count}, ${formatSize(saved.size_bytes)}, ${latest}`));
    }
    return parts;
  }

  private _capturedParts({ captured, total }: ICapturedData): HTMLElement[] {
    const trans = this._trans;
    const size = formatSize(captured.reduce((sum, one) => sum + one.size_bytes, 0));
    const head = [trans.__('Name'), trans.__('Cell'), trans.__('Type'), trans.__('Size')];
    const hidden = total - captured.length;
    const names = trans._n('%1 name', '%1 names', total);
    return [
      h('summary', {}, `${trans.__('Captured from the notebook')}: ${names}, ${size}`),
      dataTable({
        head,
        rows: captured.map(one => [one.name, one.cell, one.type, formatSize(one.size_bytes)]),
        isNumber: column => column === 3
      }),
      ...(hidden > 0 ? [h('p.det-quiet', {}, trans._n('%1 more', '%1 more', hidden))] : [])
    ];
  }

  private readonly _saved = h('div.det-line');
  private readonly _notices = h('div');
  private readonly _drawNotices = rebuilder(this._notices, (notices: string[]) =>
    notices.map(notice => h('p.det-quiet', {}, notice))
  );
  private readonly _captured = h('details');
  private readonly _drawSaved = rebuilder(this._saved, (saved: ICheckpoints) =>
    this._savedParts(saved)
  );
  private readonly _drawCaptured = rebuilder(this._captured, (data: ICapturedData) =>
    this._capturedParts(data)
  );
}
