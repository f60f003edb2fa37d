/** The positions of rows and the visible range of a windowed list; independent of the DOM. */

/** Rows drawn above and below the visible ones, so that quick scrolling shows no gap. */
const SPARE = 4;

export interface IRange {
  first: number;
  /** One past the last. */
  end: number;
}

/** The heights and positions of rows, which are known before they are drawn. */
export class Heights {
  /** Set the heights of all rows. */
  set(heights: readonly number[]): void {
    this._tops = new Float64Array(heights.length + 1);
    heights.forEach((height, place) => {
      this._tops[place + 1] = (this._tops[place] as number) + height;
    });
  }

  get count(): number {
    return this._tops.length - 1;
  }

  get total(): number {
    return this._tops[this.count] as number;
  }

  topOf(place: number): number {
    return this._tops[Math.max(0, Math.min(this.count, place))] as number;
  }

  /** The index of the row at this distance from the top. */
  at(y: number): number {
    let [low, high] = [0, Math.max(0, this.count - 1)];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this._tops[middle] as number) <= y) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  /** The rows to draw. */
  range(scroll: number, height: number): IRange {
    if (this.count === 0 || height <= 0) {
      return { first: 0, end: 0 };
    }
    const first = Math.max(0, this.at(scroll) - SPARE);
    return { first, end: Math.min(this.count, this.at(scroll + height) + 1 + SPARE) };
  }

  /** The nearest scroll offset at which a row is wholly visible. */
  scrollTo(place: number, scroll: number, height: number): number {
    const [top, bottom] = [this.topOf(place), this.topOf(place + 1)];
    return top < scroll ? top : bottom > scroll + height ? Math.max(0, bottom - height) : scroll;
  }

  private _tops = new Float64Array(1);
}
